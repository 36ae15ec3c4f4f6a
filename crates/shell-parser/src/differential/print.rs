//! Prints a syntax tree in the format of `bash --pretty-print`, for a comparison character by
//! character.

use std::ops::Range;

use super::super::Parser;
use super::super::syntax::{
    Assign, Body, Inline, List, Operator, Piece, Redirect, Script, ShellCommand, ShellCommandKind,
    Word,
};
use super::nodes::{Node, list};

/// Prints a script as the body of a function; `None` if the printer does not support it.
pub(super) fn function(name: &str, script: &Script) -> Option<String> {
    let mut printer = Printer::new(script, false);
    printer.out = format!("{name} () \n{{ \n");
    printer.indent = 4;
    printer.inside = 1;
    printer.node(&list(script, &script.list, false)?);
    printer.flush("");
    printer.indent = 0;
    printer.newline("}");
    (!printer.lost).then_some(printer.out + "\n")
}

struct Printer<'s> {
    script: &'s Script,
    out: String,
    indent: usize,
    skip: usize,
    /// The number of functions around the current position, and of operators.
    inside: usize,
    joined: usize,
    deferred: Vec<&'s Redirect>,
    was_heredoc: bool,
    /// True if it prints the list of a `$(…)`.
    inline: bool,
    lost: bool,
}

impl<'s> Printer<'s> {
    fn new(script: &'s Script, inline: bool) -> Self {
        Self {
            script,
            out: String::new(),
            indent: 0,
            skip: 0,
            inside: 0,
            joined: 0,
            deferred: vec![],
            was_heredoc: false,
            inline,
            lost: false,
        }
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn newline(&mut self, text: &str) {
        self.out.push('\n');
        self.out.push_str(&" ".repeat(self.indent));
        self.out.push_str(text);
    }

    fn semicolon(&mut self) {
        if !self.out.ends_with(['&', '\n']) {
            self.out.push(';');
        }
    }

    fn part(&mut self, items: &'s List) {
        match list(self.script, items, self.inline) {
            Some(node) => self.node(&node),
            None => self.lost |= !items.is_empty(),
        }
    }

    fn enter(&mut self) {
        if self.skip > 0 {
            self.skip -= 1;
        } else {
            self.out.push_str(&" ".repeat(self.indent));
        }
    }

    fn node(&mut self, node: &Node<'s>) {
        self.enter();
        match node {
            Node::Command(command) => self.command(command),
            Node::Flagged(flags, inner) => {
                self.put(flags);
                self.skip += 1;
                self.node(inner);
            }
            Node::Both(first, sign, second) => {
                self.skip += 1;
                self.joined += 1;
                self.node(first);
                match *sign {
                    "&" | "|" => {
                        self.flush(&format!(" {sign}"));
                        if *sign != "&" || second.is_some() {
                            self.put(" ");
                            self.skip += 1;
                        }
                    }
                    "&&" | "||" => {
                        self.flush(&format!(" {sign} "));
                        self.skip += 1;
                    }
                    sign => self.semicolon_between(sign),
                }
                if let Some(second) = second {
                    self.node(second);
                }
                self.flush_waiting();
                self.joined -= 1;
            }
        }
    }

    fn semicolon_between(&mut self, sign: &str) {
        let shown = if self.inline { sign } else { ";" };
        let newline = self.deferred.is_empty() && !self.was_heredoc && self.inline && sign == "\n";
        if !self.deferred.is_empty() {
            self.flush(if self.inside > 0 { "" } else { ";" });
        } else if self.was_heredoc {
            self.was_heredoc = false;
        } else {
            self.put(shown);
        }
        if self.inside > 0 || (self.inline && sign == "\n" && !newline) {
            self.put("\n");
        } else {
            if !self.inline || sign == ";" {
                self.put(" ");
            }
            self.skip += 1;
        }
    }

    fn flush_waiting(&mut self) {
        if !self.deferred.is_empty() {
            self.flush("");
        }
    }

    fn flush(&mut self, sign: &str) {
        let shown = !sign.is_empty() && sign != ";";
        if shown {
            self.put(sign);
        }
        let waiting = std::mem::take(&mut self.deferred);
        if !waiting.is_empty() {
            self.bodies(&waiting);
            if shown {
                self.put(" ");
            }
        }
    }

    fn bodies(&mut self, redirects: &[&Redirect]) {
        self.put("\n");
        for redirect in redirects {
            let Some(doc) = redirect
                .heredoc
                .and_then(|index| self.script.heredocs.get(index))
            else {
                continue;
            };
            let body = doc
                .body
                .as_ref()
                .map(|body| body.source.clone())
                .unwrap_or_default();
            self.put(&format!("{body}{}\n", doc.delimiter));
        }
        self.was_heredoc = true;
    }

    fn command(&mut self, command: &'s ShellCommand) {
        match &command.kind {
            ShellCommandKind::Simple { assigns, words } => {
                let mut all = vec![];
                let mut end = command.range.start;
                for assign in assigns {
                    let start = self.next_word(end, &command.redirects);
                    all.push(self.assign(assign, start));
                    end = assign.value.range.end;
                }
                all.extend(words.iter().map(|word| self.word(word)));
                self.put(&all.join(" "));
                if !all.is_empty() && !command.redirects.is_empty() {
                    self.put(" ");
                }
            }
            kind => {
                self.compound(command, kind);
                if !command.redirects.is_empty() {
                    self.put(" ");
                }
            }
        }
        if !command.redirects.is_empty() {
            self.redirects(&command.redirects);
        }
    }

    fn compound(&mut self, command: &'s ShellCommand, kind: &'s ShellCommandKind) {
        match kind {
            ShellCommandKind::Simple { .. } => {}
            ShellCommandKind::Group(list) => self.group(list),
            ShellCommandKind::Subshell(list) => {
                self.put("( ");
                self.skip += 1;
                self.part(list);
                self.flush_waiting();
                self.put(" )");
            }
            ShellCommandKind::Branches(lists) => self.branches(lists),
            ShellCommandKind::Loop(lists) => {
                let until = self.script.source[command.range.clone()].starts_with("until");
                self.put(if until { "until " } else { "while " });
                self.skip += 1;
                self.part(&lists[0]);
                self.flush_waiting();
                self.semicolon();
                self.put(" do\n");
                self.indent += 4;
                self.part(&lists[1]);
                self.flush_waiting();
                self.indent -= 4;
                self.semicolon();
                self.newline("done");
            }
            ShellCommandKind::For { name, words, body } => {
                let word = if self.script.source[command.range.clone()].starts_with("for") {
                    "for"
                } else {
                    "select"
                };
                let words: Vec<String> =
                    words.iter().flatten().map(|word| self.word(word)).collect();
                let given = matches!(kind, ShellCommandKind::For { words: None, .. });
                let words = if given {
                    "\"$@\"".to_owned()
                } else {
                    words.join(" ")
                };
                self.put(&format!("{word} {name} in {words};"));
                self.newline("do\n");
                self.indent += 4;
                self.part(body);
                self.flush_waiting();
                self.semicolon();
                self.indent -= 4;
                self.newline("done");
            }
            ShellCommandKind::Case { word, arms } => self.case(word, arms),
            ShellCommandKind::Condition(words) => {
                let text = self.condition(words);
                self.put(&text);
            }
            ShellCommandKind::Function { name, body } => self.function(name, body),
            ShellCommandKind::Arithmetic(pieces) => {
                let Range { start, end } = command.range;
                let end = command
                    .redirects
                    .iter()
                    .map(|redirect| redirect.range.start)
                    .fold(end, usize::min);
                let text = self.text(&pieces.iter().collect::<Vec<_>>(), start..end);
                self.put(text.trim_end());
            }
            ShellCommandKind::ArithmeticFor { .. } | ShellCommandKind::Coprocess { .. } => {
                self.lost = true
            }
        }
    }

    fn group(&mut self, list: &'s List) {
        self.put("{ ");
        if self.inside == 0 {
            self.skip += 1;
        } else {
            self.put("\n");
            self.indent += 4;
        }
        self.part(list);
        self.flush_waiting();
        if self.inside > 0 {
            self.indent -= 4;
            self.newline("}");
        } else {
            self.semicolon();
            self.put(" }");
        }
    }

    fn branches(&mut self, lists: &'s [List]) {
        self.put("if ");
        self.skip += 1;
        self.part(&lists[0]);
        self.semicolon();
        self.put(" then\n");
        self.indent += 4;
        self.part(&lists[1]);
        self.flush_waiting();
        self.indent -= 4;
        let rest = &lists[2..];
        if !rest.is_empty() {
            self.semicolon();
            self.newline("else\n");
            self.indent += 4;
            if let [last] = rest {
                self.part(last);
            } else {
                self.enter();
                self.branches(rest);
            }
            self.flush_waiting();
            self.indent -= 4;
        }
        self.semicolon();
        self.newline("fi");
    }

    fn case(&mut self, word: &'s Word, arms: &'s [(Vec<Word>, List)]) {
        let word = self.word(word);
        self.put(&format!("case {word} in "));
        self.indent += 4;
        for (patterns, list) in arms {
            let patterns: Vec<String> = patterns.iter().map(|word| self.word(word)).collect();
            self.newline(&format!("{})\n", patterns.join(" | ")));
            self.indent += 4;
            self.part(list);
            self.indent -= 4;
            self.flush_waiting();
            self.newline(";;");
        }
        self.indent -= 4;
        self.newline("esac");
    }

    fn function(&mut self, name: &str, body: &'s ShellCommand) {
        self.put(&format!(
            "{}{name} () \n",
            if self.inline { "function " } else { "" }
        ));
        self.put(&" ".repeat(self.indent));
        self.put("{ \n");
        self.inside += 1;
        self.indent += 4;
        let group = if let ShellCommandKind::Group(list) = &body.kind {
            self.part(list);
            true
        } else {
            self.node(&Node::Command(body));
            false
        };
        self.flush_waiting();
        self.indent -= 4;
        self.inside -= 1;
        self.newline("}");
        if group && !body.redirects.is_empty() {
            self.put(" ");
            self.redirects(&body.redirects);
        } else {
            self.was_heredoc = false;
        }
    }

    fn condition(&mut self, words: &'s [Word]) -> String {
        let words: Vec<String> = words.iter().map(|word| self.word(word)).collect();
        let mut out = vec!["[[".to_owned()];
        let mut words = words.into_iter().peekable();
        let is_operator = |word: &String| ["&&", "||", ")"].contains(&word.as_str());
        while let Some(word) = words.next() {
            if is_operator(&word) || word == "(" || word == "!" {
                out.push(word);
                continue;
            }
            let unary = word.len() == 2
                && word.starts_with('-')
                && word.as_bytes()[1].is_ascii_alphabetic();
            match words.next_if(|word| !is_operator(word)) {
                Some(operand) if unary => out.extend([word, operand]),
                Some(operator) => out.extend([word, operator, words.next().unwrap_or_default()]),
                None => out.extend(["-n".into(), word]),
            }
        }
        out.push("]]".into());
        out.join(" ")
    }

    fn redirects(&mut self, redirects: &'s [Redirect]) {
        self.was_heredoc = false;
        let texts: Vec<String> = redirects
            .iter()
            .map(|redirect| self.redirect(redirect))
            .collect();
        self.put(&texts.join(" "));
        let docs: Vec<&Redirect> = redirects
            .iter()
            .filter(|redirect| redirect.heredoc.is_some())
            .collect();
        if docs.is_empty() {
            return;
        }
        if self.joined > 0 {
            self.deferred = docs;
        } else {
            self.bodies(&docs);
        }
    }

    fn redirect(&mut self, redirect: &'s Redirect) -> String {
        let raw = &self.script.source[redirect.range.clone()];
        if raw.is_empty() {
            return "2>&1".into();
        }
        let (before, after) = raw.split_at(raw.find(['<', '>', '&']).unwrap_or_default());
        let sign = [
            "&>>", "&>", "<<<", "<<-", "<<", "<>", "<&", "<", ">>", ">|", ">&", ">",
        ];
        let sign = sign
            .into_iter()
            .find(|sign| after.starts_with(sign))
            .unwrap_or_default();
        let number = before
            .parse::<u32>()
            .map(|number| number.to_string())
            .unwrap_or(before.to_owned());
        let usual = if sign.starts_with('<') { "0" } else { "1" };
        let shown = match sign {
            "<>" if number.is_empty() => "0",
            "<>" if number == "1" => "",
            _ if number == usual && sign != "<>" => "",
            _ => &number,
        };
        if let Some(doc) = redirect
            .heredoc
            .and_then(|index| self.script.heredocs.get(index))
        {
            let delimiter = if doc.quoted {
                quote(&doc.delimiter)
            } else {
                doc.delimiter.clone()
            };
            return format!("{shown}{sign}{delimiter}");
        }
        let word = self.word(&redirect.target);
        // bash may quote these again.
        self.lost |=
            redirect.operator == Operator::HereString && word.contains(|c: char| c.is_control());
        if !matches!(
            redirect.operator,
            Operator::Duplicate | Operator::DuplicateIn
        ) {
            return format!("{shown}{sign} {word}");
        }
        let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        if digits || word == "-" {
            let number = if number.is_empty() { usual } else { &number };
            let number = if word == "-" || redirect.variable.is_none() {
                number
            } else {
                before
            };
            let word = if digits {
                word.parse::<u32>().unwrap_or_default().to_string()
            } else {
                word
            };
            // A closed descriptor is always printed as an output.
            return format!("{number}{}{word}", if word == "-" { ">&" } else { sign });
        }
        format!("{shown}{sign}{word}")
    }

    /// Returns the start of the next word: after blanks, continued lines and redirections.
    fn next_word(&self, mut at: usize, redirects: &[Redirect]) -> usize {
        loop {
            let rest = &self.script.source[at..];
            let blanks = rest.len() - rest.trim_start_matches([' ', '\t']).len();
            let redirect = redirects
                .iter()
                .find(|redirect| redirect.range.start == at && !redirect.range.is_empty());
            at = match redirect {
                Some(redirect) => redirect.range.end,
                None if blanks > 0 => at + blanks,
                None if rest.starts_with("\\\n") => at + 2,
                None => return at,
            };
        }
    }

    fn assign(&mut self, assign: &'s Assign, start: usize) -> String {
        let Assign {
            subscript,
            value,
            array,
            ..
        } = assign;
        match array {
            None => {
                let pieces: Vec<&'s Piece> = subscript.iter().chain(&value.pieces).collect();
                self.text(&pieces, start..value.range.end)
            }
            Some(words) => {
                let head = self.text(
                    &subscript.iter().collect::<Vec<_>>(),
                    start..value.range.start,
                );
                let words: Vec<String> = words.iter().map(|word| self.word(word)).collect();
                format!("{head}({})", words.join(" "))
            }
        }
    }

    fn word(&mut self, word: &'s Word) -> String {
        let raw = &self.script.source[word.range.clone()];
        if raw.is_empty() {
            return word
                .pieces
                .iter()
                .map(|piece| {
                    if let Piece::Text(text) = piece {
                        text.as_str()
                    } else {
                        ""
                    }
                })
                .collect();
        }
        let signed = raw.find("=(").filter(|at| {
            raw[..*at]
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_[]+-".contains(&byte))
                && raw.ends_with(')')
        });
        if let Some(at) = signed {
            let words: Vec<String> = word.array.iter().map(|word| self.word(word)).collect();
            return format!("{}=({})", &raw[..at], words.join(" "));
        }
        self.text(&word.pieces.iter().collect::<Vec<_>>(), word.range.clone())
    }

    /// Returns the text of a word with its substitutions printed, `$'…'` decoded and continued
    /// lines joined.
    fn text(&mut self, pieces: &[&'s Piece], range: Range<usize>) -> String {
        let mut inlines = vec![];
        pieces.iter().for_each(|piece| collect(piece, &mut inlines));
        let source = self.script.source.as_str();
        let mut out = String::new();
        let mut at = range.start;
        let mut open: Vec<char> = vec![];
        while at < range.end {
            if let Some(inline) = inlines.iter().find(|inline| inline.range.start == at) {
                out.push_str(&source[at..at + 2]);
                out.push_str(&self.inner(&inline.list));
                out.push(')');
                at = inline.range.end;
                continue;
            }
            let rest = &source[at..range.end];
            let c = rest.chars().next().unwrap_or_default();
            let quoted = open.last() == Some(&'"');
            let free = !open.contains(&'"');
            if free && rest.starts_with("$'") {
                let mut parser = Parser::new(source, 0);
                parser.at = at + 2;
                let text = parser.ansi_c().unwrap_or_default();
                out.push_str(&quote(&text));
                at = parser.at;
                continue;
            }
            let length = match c {
                '\\' if rest.starts_with("\\\n") => {
                    at += 2;
                    continue;
                }
                '$' if rest.starts_with("$$") => 2,
                '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
                '\'' if free => 2 + rest[1..].find('\'').unwrap_or_default(),
                '`' => 2 + rest[1..].find('`').unwrap_or_default(),
                '$' if rest.starts_with("${") => {
                    open.push('}');
                    2
                }
                '}' if open.last() == Some(&'}') => {
                    open.pop();
                    1
                }
                '"' => {
                    if quoted {
                        open.pop();
                    } else {
                        open.push('"');
                    }
                    1
                }
                c => c.len_utf8(),
            };
            let part = rest.get(..length).unwrap_or(rest);
            out.push_str(part);
            at += part.len();
        }
        out
    }

    fn inner(&mut self, items: &'s List) -> String {
        let mut printer = Printer::new(self.script, true);
        printer.part(items);
        self.lost |= printer.lost;
        if printer.out.starts_with('(') {
            format!(" {}", printer.out)
        } else {
            printer.out
        }
    }
}

fn collect<'s>(piece: &'s Piece, inlines: &mut Vec<&'s Inline>) {
    match piece {
        Piece::Command {
            body: Body::Inline(inline),
            ..
        }
        | Piece::Process(inline) => inlines.push(inline),
        Piece::Arithmetic(inner) | Piece::Parameter { inner, .. } => {
            inner.iter().for_each(|piece| collect(piece, inlines));
        }
        _ => {}
    }
}

/// Quotes a text as bash does, in single quotes.
fn quote(text: &str) -> String {
    if text == "'" {
        "\\'".into()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}
