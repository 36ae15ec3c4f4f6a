//! A reader of bash that either accounts for every byte of a line or says that it cannot. It knows
//! the whole grammar of lists, compound commands, words, substitutions and here-documents; where
//! bash itself would need settings to decide (extended patterns, aliases), it gives up.
//!
//! Recursive, with a depth limit far below what a thread's stack holds.

use std::ops::Range;

use super::syntax::{Assign, Command, Heredoc, Item, Kind, List, Operator, Piece, Redirect, Script, Unreadable, Word};

/// How deep constructs may nest. People stop at ten.
pub(super) const DEPTH: usize = 48;

/// How many constructs one text may hold. `$((` is read twice where it is no sum, so nesting it costs
/// a power of two without this.
const FUEL: usize = 150_000;

/// How many simple commands, assignments, redirections and back-ticks one text may hold: more are not judged one by one.
const COMMANDS: usize = 1_000;

pub(super) type Read<T> = Result<T, Unreadable>;

const CLOSERS: [&str; 8] = ["then", "elif", "else", "fi", "do", "done", "esac", "}"];
const DECLARES: [&str; 5] = ["declare", "typeset", "local", "export", "readonly"];

/// Reads a script. `depth` counts the texts it is nested in.
pub(super) fn script(source: &str, depth: usize) -> Read<Script> {
    let mut parser = Parser::new(source, depth);
    read(&mut parser)
}

/// Of a text that cannot be read, as many whole items of its list as can, and the rest of the text.
pub(super) fn beginning(source: &str) -> Option<(Script, &str)> {
    let mut parser = Parser::new(source, 0);
    read(&mut parser).err()?;
    let (start, rest) = source.split_at_checked(parser.whole)?;
    Some((script(start, 0).ok()?, rest))
}

fn read(parser: &mut Parser<'_>) -> Read<Script> {
    let source = parser.source;
    let list = parser.list()?;
    if parser.at < parser.text.len() {
        return Err(Unreadable::Syntax);
    }
    if parser.heredocs.iter().any(|doc| doc.body.is_none()) {
        return Err(Unreadable::Unclosed);
    }
    let heredocs = std::mem::take(&mut parser.heredocs);
    Ok(Script { source: source.to_owned(), list, pieces: vec![], heredocs })
}

/// Reads the body of an unquoted here-doc.
fn body(source: &str, depth: usize) -> Read<Script> {
    let mut parser = Parser::new(source, depth);
    let pieces = parser.quoted(None)?;
    if parser.heredocs.iter().any(|doc| doc.body.is_none()) {
        return Err(Unreadable::Unclosed);
    }
    Ok(Script { source: source.to_owned(), list: vec![], pieces, heredocs: parser.heredocs })
}

pub(super) struct Parser<'s> {
    pub(super) text: &'s [u8],
    pub(super) source: &'s str,
    pub(super) at: usize,
    pub(super) depth: usize,
    /// What is left of [`FUEL`].
    fuel: usize,
    /// How many simple commands may still come.
    pub(super) commands: usize,
    /// How deep the text itself is, and where the last item of its own list ends.
    base: usize,
    whole: usize,
    pub(super) heredocs: Vec<Heredoc>,
}

pub(super) fn meta(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')')
}

pub(super) fn name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

pub(super) fn name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

impl<'s> Parser<'s> {
    fn new(source: &'s str, depth: usize) -> Self {
        Self {
            text: source.as_bytes(),
            source,
            at: 0,
            depth,
            fuel: FUEL,
            commands: COMMANDS,
            base: depth,
            whole: 0,
            heredocs: vec![],
        }
    }

    /// The next byte; a continued line is no byte.
    pub(super) fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = self.text.get(self.at).copied();
            if byte != Some(b'\\') || self.text.get(self.at + 1) != Some(&b'\n') {
                return byte;
            }
            self.at += 2;
        }
    }

    /// Whether these bytes come next, continuations aside; nothing is consumed.
    pub(super) fn next_is(&mut self, wanted: &str) -> bool {
        let start = self.at;
        let same = wanted.bytes().all(|byte| {
            let same = self.peek() == Some(byte);
            self.at += usize::from(same);
            same
        });
        self.at = start;
        same
    }

    pub(super) fn eat(&mut self, wanted: &str) -> bool {
        let start = self.at;
        let same = wanted.bytes().all(|byte| {
            let same = self.peek() == Some(byte);
            self.at += usize::from(same);
            same
        });
        if !same {
            self.at = start;
        }
        same
    }

    pub(super) fn expect(&mut self, wanted: &str) -> Read<()> {
        if self.eat(wanted) { Ok(()) } else { Err(Unreadable::Syntax) }
    }

    /// Whether a reserved word comes next, as a word of its own.
    fn word_is(&mut self, wanted: &str) -> bool {
        let start = self.at;
        let same = self.eat(wanted) && self.peek().is_none_or(meta);
        self.at = start;
        same
    }

    fn eat_word(&mut self, wanted: &str) -> bool {
        self.word_is(wanted) && self.eat(wanted)
    }

    /// Skips blanks and a comment.
    fn blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        if self.peek() == Some(b'#') {
            while self.text.get(self.at).is_some_and(|byte| *byte != b'\n') {
                self.at += 1;
            }
        }
    }

    /// Skips blanks, comments and newlines; the here-docs of a line follow its newline.
    fn linebreak(&mut self) -> Read<()> {
        loop {
            self.blank();
            if self.peek() != Some(b'\n') {
                return Ok(());
            }
            self.newline()?;
        }
    }

    fn newline(&mut self) -> Read<()> {
        self.at += 1;
        for index in 0..self.heredocs.len() {
            if self.heredocs[index].body.is_none() {
                self.heredoc_body(index)?;
            }
        }
        Ok(())
    }

    fn heredoc_body(&mut self, index: usize) -> Read<()> {
        let (quoted, strip) = (self.heredocs[index].quoted, self.heredocs[index].strip);
        let mut text = String::new();
        loop {
            if self.at >= self.text.len() {
                return Err(Unreadable::Unclosed);
            }
            let mut line = self.line(strip);
            // In an expanded here-doc a backslash joins lines before the delimiter is looked for.
            while !quoted && line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1 {
                if self.at >= self.text.len() {
                    return Err(Unreadable::Unclosed);
                }
                line.pop();
                line.push_str(&self.line(strip));
            }
            if line == self.heredocs[index].delimiter {
                break;
            }
            text.push_str(&line);
            text.push('\n');
        }
        let body = if quoted {
            Script { source: text.clone(), pieces: vec![Piece::Quoted(text)], ..Script::default() }
        } else {
            self.nested(|parser| body(&text, parser.depth))?
        };
        self.heredocs[index].body = Some(body);
        Ok(())
    }

    fn line(&mut self, strip: bool) -> String {
        let start = self.at;
        while self.text.get(self.at).is_some_and(|byte| *byte != b'\n') {
            self.at += 1;
        }
        let line = &self.source[start..self.at];
        self.at = (self.at + 1).min(self.text.len());
        (if strip { line.trim_start_matches('\t') } else { line }).to_owned()
    }

    pub(super) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        if self.depth >= DEPTH || self.fuel == 0 {
            return Err(Unreadable::TooDeep);
        }
        self.fuel -= 1;
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn at_stop(&mut self) -> bool {
        match self.peek() {
            None | Some(b')') => true,
            Some(b';') => self.next_is(";;") || self.next_is(";&"),
            Some(b't' | b'e' | b'f' | b'd' | b'}') => CLOSERS.iter().any(|word| self.word_is(word)),
            Some(_) => false,
        }
    }

    pub(super) fn list(&mut self) -> Read<List> {
        let mut items = vec![];
        let mut perhaps = false;
        let mut owed = false;
        loop {
            if self.depth == self.base && !owed {
                self.whole = self.at;
            }
            self.linebreak()?;
            if self.at_stop() {
                return if owed { Err(Unreadable::Syntax) } else { Ok(items) };
            }
            let commands = self.nested(Self::pipeline)?;
            let mut item = Item { commands, background: false, perhaps };
            self.blank();
            owed = self.eat("&&") || self.eat("||");
            perhaps = owed;
            if owed || self.peek() == Some(b'\n') {
                items.push(item);
                continue;
            }
            if self.next_is(";;") || self.next_is(";&") || self.peek().is_none() || self.peek() == Some(b')') {
                items.push(item);
                return Ok(items);
            }
            item.background = self.peek() == Some(b'&');
            if !item.background && self.peek() != Some(b';') {
                // A closer may follow a compound command directly: `{ (ls) }`.
                let closes = !matches!(item.commands.last().map(|c| &c.kind), Some(Kind::Simple { .. }));
                items.push(item);
                return if closes && self.at_stop() { Ok(items) } else { Err(Unreadable::Syntax) };
            }
            items.push(item);
            self.at += 1;
        }
    }

    /// A list that must not be empty.
    pub(super) fn some_list(&mut self) -> Read<List> {
        let list = self.nested(Self::list)?;
        if list.is_empty() { Err(Unreadable::Syntax) } else { Ok(list) }
    }

    fn pipeline(&mut self) -> Read<Vec<Command>> {
        while matches!(self.peek(), Some(b'!' | b't')) {
            if self.eat_word("!") {
                self.blank();
            } else if self.eat_word("time") {
                self.blank();
                for option in ["-p", "--"] {
                    if self.eat_word(option) {
                        self.blank();
                    }
                }
            } else {
                break;
            }
        }
        let mut commands = vec![self.command()?];
        loop {
            self.blank();
            if self.next_is("||") || !self.eat("|") {
                return Ok(commands);
            }
            self.eat("&");
            self.linebreak()?;
            commands.push(self.command()?);
        }
    }

    fn command(&mut self) -> Read<Command> {
        let start = self.at;
        if self.at_stop() {
            return Err(Unreadable::Syntax);
        }
        let Some(kind) = self.nested(Self::compound)? else {
            return self.nested(Self::simple);
        };
        let redirects = self.redirects()?;
        Ok(Command { kind, redirects, range: start..self.at })
    }

    fn redirects(&mut self) -> Read<Vec<Redirect>> {
        let mut redirects = vec![];
        loop {
            let end = self.at;
            self.blank();
            match self.redirect()? {
                Some(redirect) => redirects.push(redirect),
                None => {
                    self.at = end;
                    return Ok(redirects);
                }
            }
        }
    }

    fn compound(&mut self) -> Read<Option<Kind>> {
        if !matches!(self.peek(), Some(b'(' | b'{' | b'i' | b'w' | b'u' | b'f' | b's' | b'c' | b'[')) {
            return Ok(None);
        }
        let kind = if self.next_is("(") {
            if self.next_is("((") {
                let start = (self.at, self.heredocs.len());
                self.eat("((");
                match self.arithmetic("))") {
                    Ok(pieces) => return Ok(Some(Kind::Arithmetic(pieces))),
                    // What is not closed as a sum is not closed as a command either.
                    Err(Unreadable::Syntax) => {}
                    Err(end) => return Err(end),
                }
                self.at = start.0;
                self.heredocs.truncate(start.1);
            }
            self.eat("(");
            let list = self.some_list()?;
            self.expect(")")?;
            Kind::Subshell(list)
        } else if self.eat_word("{") {
            Kind::Group(self.group()?)
        } else if self.eat_word("if") {
            self.branches()?
        } else if self.eat_word("while") || self.eat_word("until") {
            let condition = self.some_list()?;
            Kind::Loop(vec![condition, self.do_body()?])
        } else if self.eat_word("for") {
            self.for_loop(true)?
        } else if self.eat_word("select") {
            self.for_loop(false)?
        } else if self.eat_word("case") {
            self.case()?
        } else if self.eat_word("[[") {
            Kind::Condition(self.condition()?)
        } else if self.eat_word("function") {
            self.blank();
            let name = self.plain_name()?;
            self.blank();
            if self.eat("(") {
                self.blank();
                self.expect(")")?;
            }
            self.linebreak()?;
            Kind::Function { name, body: Box::new(self.command()?) }
        } else if self.eat_word("coproc") {
            self.blank();
            self.coprocess_name()?;
            Kind::Coprocess(Box::new(self.command()?))
        } else {
            return Ok(None);
        };
        Ok(Some(kind))
    }

    /// `coproc NAME {`: the name of an array, before a compound command only.
    fn coprocess_name(&mut self) -> Read<()> {
        let start = self.at;
        while self.peek().is_some_and(name_byte) {
            self.at += 1;
        }
        let name = self.source[start..self.at].to_owned();
        self.blank();
        let compound = self.at > start + name.len() && matches!(self.peek(), Some(b'{' | b'('));
        if !compound {
            self.at = start;
            return Ok(());
        }
        // The descriptors would become the variable's value.
        if super::variables::variable_danger(&name).is_some() { Err(Unreadable::Syntax) } else { Ok(()) }
    }

    fn group(&mut self) -> Read<List> {
        let list = self.some_list()?;
        self.linebreak()?;
        if self.eat_word("}") { Ok(list) } else { Err(Unreadable::Syntax) }
    }

    fn closing(&mut self, word: &str) -> Read<()> {
        self.linebreak()?;
        if self.eat_word(word) { Ok(()) } else { Err(Unreadable::Syntax) }
    }

    fn branches(&mut self) -> Read<Kind> {
        let mut lists = vec![self.some_list()?];
        self.closing("then")?;
        lists.push(self.some_list()?);
        loop {
            if self.eat_word("elif") {
                lists.push(self.some_list()?);
                self.closing("then")?;
                lists.push(self.some_list()?);
            } else if self.eat_word("else") {
                lists.push(self.some_list()?);
            } else {
                self.closing("fi")?;
                return Ok(Kind::Branches(lists));
            }
        }
    }

    fn do_body(&mut self) -> Read<List> {
        self.linebreak()?;
        if self.eat_word("{") {
            return self.group();
        }
        self.closing("do")?;
        let list = self.some_list()?;
        self.closing("done")?;
        Ok(list)
    }

    fn for_loop(&mut self, arithmetic: bool) -> Read<Kind> {
        self.blank();
        if arithmetic && self.eat("((") {
            let head = self.arithmetic("))")?;
            self.blank();
            self.eat(";");
            return Ok(Kind::ArithmeticFor { head, body: self.do_body()? });
        }
        let name = self.plain_name()?;
        if !name.bytes().all(name_byte) {
            return Err(Unreadable::Syntax);
        }
        self.linebreak()?;
        let mut words = None;
        if self.eat_word("in") {
            let mut found = vec![];
            loop {
                self.blank();
                if self.peek().is_none_or(|byte| meta(byte) && !self.process_next()) {
                    break;
                }
                found.push(self.word()?);
            }
            words = Some(found);
        }
        self.blank();
        if self.next_is(";;") {
            return Err(Unreadable::Syntax);
        }
        self.eat(";");
        Ok(Kind::For { name, words, body: self.do_body()? })
    }

    fn case(&mut self) -> Read<Kind> {
        self.blank();
        let word = self.word()?;
        self.closing("in")?;
        let mut arms = vec![];
        loop {
            self.linebreak()?;
            if self.eat_word("esac") {
                return Ok(Kind::Case { word, arms });
            }
            self.eat("(");
            let mut patterns = vec![];
            loop {
                self.blank();
                patterns.push(self.word()?);
                self.blank();
                if !self.eat("|") {
                    break;
                }
            }
            self.expect(")")?;
            let list = self.nested(Self::list)?;
            arms.push((patterns, list));
            if !(self.eat(";;&") || self.eat(";;") || self.eat(";&")) {
                self.closing("esac")?;
                return Ok(Kind::Case { word, arms });
            }
        }
    }

    fn condition(&mut self) -> Read<Vec<Word>> {
        let mut words = vec![];
        let mut pattern = false;
        loop {
            self.linebreak_in_condition()?;
            if self.eat_word("]]") {
                return Ok(words);
            }
            let start = self.at;
            if !pattern && (self.eat("&&") || self.eat("||") || self.eat("(") || self.eat(")")) {
                continue;
            }
            if !self.process_next() && (self.eat("<") || self.eat(">")) {
                continue;
            }
            let word = self.word_until(pattern)?;
            if word.range.is_empty() {
                return Err(Unreadable::Syntax);
            }
            pattern = matches!(&self.source[start..self.at], "=~" | "==" | "=" | "!=");
            words.push(word);
        }
    }

    fn linebreak_in_condition(&mut self) -> Read<()> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t') => self.at += 1,
                Some(b'\n') => self.newline()?,
                _ => return Ok(()),
            }
        }
    }

    /// Fails while a here-doc waits for its body: where that begins when a substitution comes first,
    /// versions of bash do not agree.
    pub(super) fn settled(&self) -> Read<()> {
        if self.heredocs.iter().any(|doc| doc.body.is_none()) { Err(Unreadable::Syntax) } else { Ok(()) }
    }

    fn plain_name(&mut self) -> Read<String> {
        let start = self.at;
        let mut name = String::new();
        while let Some(byte) = self.peek()
            && !meta(byte)
        {
            if matches!(byte, b'$' | b'`' | b'\'' | b'"' | b'\\') {
                return Err(Unreadable::Syntax);
            }
            name.push(char::from(byte));
            self.at += 1;
        }
        if self.at == start { Err(Unreadable::Syntax) } else { Ok(name) }
    }

    fn simple(&mut self) -> Read<Command> {
        self.commands = self.commands.checked_sub(1).ok_or(Unreadable::TooMany)?;
        let start = self.at;
        let (mut assigns, mut words, mut redirects) = (vec![], Vec::<Word>::new(), vec![]);
        let mut declares = false;
        let mut end = start;
        loop {
            self.blank();
            if let Some(redirect) = self.redirect()? {
                redirects.push(redirect);
                end = self.at;
                continue;
            }
            let Some(byte) = self.peek() else { break };
            if byte == b'(' && words.len() == 1 && assigns.is_empty() && redirects.is_empty() {
                self.at += 1;
                self.blank();
                self.expect(")")?;
                self.linebreak()?;
                let name = self.source[words[0].range.clone()].replace("\\\n", "");
                let body = Box::new(self.nested(Self::command)?);
                return Ok(Command { kind: Kind::Function { name, body }, redirects, range: start..self.at });
            }
            if meta(byte) && !self.process_next() {
                break;
            }
            if words.is_empty()
                && let Some(assign) = self.assign()?
            {
                self.commands = self.commands.checked_sub(1).ok_or(Unreadable::TooMany)?;
                assigns.push(assign);
                end = self.at;
                continue;
            }
            let mut word = self.word()?;
            if self.peek() == Some(b'(') && declares && self.text[self.at - 1] == b'=' {
                word.array = self.array()?;
                word.range.end = self.at;
            }
            if words.is_empty() {
                declares = DECLARES.contains(&&self.source[word.range.clone()]);
            }
            words.push(word);
            end = self.at;
        }
        if assigns.is_empty() && words.is_empty() && redirects.is_empty() {
            return Err(Unreadable::Syntax);
        }
        Ok(Command { kind: Kind::Simple { assigns, words }, redirects, range: start..end })
    }

    fn array(&mut self) -> Read<Vec<Word>> {
        self.settled()?;
        self.expect("(")?;
        let mut words = vec![];
        loop {
            self.linebreak()?;
            if self.eat(")") {
                return Ok(words);
            }
            if self.peek().is_none_or(|byte| meta(byte) && !self.process_next()) {
                return Err(Unreadable::Syntax);
            }
            words.push(self.word()?);
        }
    }

    fn assign(&mut self) -> Read<Option<Assign>> {
        let start = self.at;
        let mut name = String::new();
        while let Some(byte) = self.peek()
            && (if name.is_empty() { name_start(byte) } else { name_byte(byte) })
        {
            name.push(char::from(byte));
            self.at += 1;
        }
        let mut subscript = vec![];
        if !name.is_empty() && self.eat("[") {
            match self.arithmetic("]") {
                Ok(pieces) => subscript = pieces,
                Err(_) => name.clear(),
            }
        }
        let append = self.next_is("+=");
        if name.is_empty() || !(self.eat("+=") || self.eat("=")) {
            self.at = start;
            return Ok(None);
        }
        if self.peek() == Some(b'(') {
            let at = self.at;
            let array = Some(self.array()?);
            let value = Word { range: at..self.at, ..Word::default() };
            return Ok(Some(Assign { name, subscript, append, value, array }));
        }
        let value = self.word_until(false)?;
        Ok(Some(Assign { name, subscript, append, value, array: None }))
    }

    pub(super) fn process_next(&mut self) -> bool {
        self.next_is("<(") || self.next_is(">(")
    }

    fn redirect(&mut self) -> Read<Option<Redirect>> {
        let starts = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'<' | b'>' | b'&' | b'{');
        if !self.peek().is_some_and(starts) || self.process_next() {
            return Ok(None);
        }
        let start = self.at;
        if self.peek() == Some(b'{') {
            self.at += 1;
            let from = self.at;
            while self.peek().is_some_and(name_byte) {
                self.at += 1;
            }
            // The descriptor's number would become the variable's value.
            if super::variables::variable_danger(&self.source[from..self.at]).is_some() {
                return Err(Unreadable::Syntax);
            }
            if !self.eat("}") || !matches!(self.peek(), Some(b'<' | b'>')) || self.process_next() {
                self.at = start;
                return Ok(None);
            }
        } else {
            while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                self.at += 1;
            }
        }
        let table = [
            ("&>>", Operator::Write),
            ("&>", Operator::Write),
            ("<<<", Operator::HereString),
            ("<<", Operator::HereDoc),
            ("<>", Operator::ReadWrite),
            ("<&", Operator::DuplicateIn),
            ("<", Operator::Read),
            (">>", Operator::Write),
            (">|", Operator::Write),
            (">&", Operator::Duplicate),
            (">", Operator::Write),
        ];
        let both = self.at > start;
        let found = table.iter().find(|(text, _)| !(both && text.starts_with('&')) && self.eat(text));
        let Some((_, operator)) = found else {
            self.at = start;
            return Ok(None);
        };
        self.commands = self.commands.checked_sub(1).ok_or(Unreadable::TooMany)?;
        if *operator == Operator::HereDoc {
            return self.heredoc(start).map(Some);
        }
        self.blank();
        if self.peek().is_none_or(|byte| meta(byte) && !self.process_next()) {
            return Err(Unreadable::Syntax);
        }
        let target = self.word()?;
        Ok(Some(Redirect { operator: *operator, target, heredoc: None, range: start..self.at }))
    }

    fn heredoc(&mut self, start: usize) -> Read<Redirect> {
        let strip = self.eat("-");
        self.blank();
        let mut delimiter = Vec::new();
        let mut quoted = false;
        let first = self.at;
        while let Some(byte) = self.peek() {
            match byte {
                b'\'' | b'"' => {
                    quoted = true;
                    self.at += 1;
                    while self.text.get(self.at).is_some_and(|next| *next != byte) {
                        delimiter.push(self.text[self.at]);
                        self.at += 1;
                    }
                    if self.at >= self.text.len() {
                        return Err(Unreadable::Unclosed);
                    }
                }
                b'\\' => {
                    quoted = true;
                    self.at += 1;
                    delimiter.extend(self.text.get(self.at));
                }
                b'$' | b'`' => return Err(Unreadable::Syntax),
                byte if meta(byte) => break,
                byte => delimiter.push(byte),
            }
            self.at += 1;
        }
        if self.at == first || self.at > self.text.len() {
            return Err(Unreadable::Syntax);
        }
        let delimiter = String::from_utf8(delimiter).map_err(|_| Unreadable::Syntax)?;
        let heredoc = Some(self.heredocs.len());
        self.heredocs.push(Heredoc { delimiter, quoted, strip, body: None });
        Ok(Redirect { operator: Operator::HereDoc, target: Word::default(), heredoc, range: start..self.at })
    }
}

/// The part of a text a range names.
pub(super) fn slice<'s>(script: &'s Script, range: &Range<usize>) -> &'s str {
    script.source.get(range.clone()).unwrap_or_default().trim()
}
