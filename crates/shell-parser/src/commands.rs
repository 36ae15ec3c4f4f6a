//! Pipelines and compound commands.

use super::syntax::{
    List, Operator, Piece, Redirect, ShellCommand, ShellCommandKind, Unreadable, Word,
};
use super::{Parser, RESERVED, Read, meta, name_byte, name_start};

impl<'s> Parser<'s> {
    pub(super) fn pipeline(&mut self) -> Read<Vec<ShellCommand>> {
        loop {
            if self.eat_word("time") {
                // Versions of bash differ in what may follow here.
                if self.inline > 0 {
                    return Err(Unreadable::Syntax);
                }
                self.blank()?;
                for option in ["-p", "--"] {
                    if self.eat_word(option) {
                        self.blank()?;
                    }
                }
                if self.next_is("-") {
                    return Err(Unreadable::Syntax);
                }
            } else if !self.eat_word("!") {
                break;
            }
            self.blank()?;
        }
        let mut commands = vec![self.command()?];
        loop {
            self.blank()?;
            if self.next_is("||") || !self.eat("|") {
                return Ok(commands);
            }
            if self.eat("&") {
                commands
                    .iter_mut()
                    .rev()
                    .take(1)
                    .for_each(|command| command.redirects.push(errors_too(self.at)));
            }
            self.linebreak()?;
            commands.push(self.command()?);
        }
    }

    fn command(&mut self) -> Read<ShellCommand> {
        let start = self.at;
        let Some(kind) = self.nested(Self::compound)? else {
            return self.nested(Self::simple);
        };
        let mut redirects = vec![];
        let mut end = self.at;
        loop {
            self.blank()?;
            let Some(redirect) = self.redirect()? else {
                break;
            };
            redirects.push(redirect);
            end = self.at;
        }
        self.at = end;
        Ok(ShellCommand {
            kind,
            redirects,
            range: start..end,
        })
    }

    fn compound(&mut self) -> Read<Option<ShellCommandKind>> {
        Ok(Some(if self.eat("((") {
            ShellCommandKind::Arithmetic(self.arithmetic("))")?)
        } else if self.eat("(") {
            let list = self.some_list()?;
            self.expect(")")?;
            ShellCommandKind::Subshell(list)
        } else if self.eat_word("{") {
            let list = self.some_list()?;
            self.closing("}")?;
            ShellCommandKind::Group(list)
        } else if self.eat_word("if") {
            self.branches()?
        } else if self.eat_word("while") || self.eat_word("until") {
            let condition = self.some_list()?;
            ShellCommandKind::Loop(vec![condition, self.do_body()?])
        } else if self.eat_word("for") {
            self.for_loop(true)?
        } else if self.eat_word("select") {
            self.for_loop(false)?
        } else if self.eat_word("case") {
            self.case()?
        } else if self.eat_word("[[") {
            ShellCommandKind::Condition(self.condition()?)
        } else if self.eat_word("function") {
            self.blank()?;
            let name = self.name()?;
            self.blank()?;
            if self.eat("(") {
                self.blank()?;
                self.expect(")")?;
            }
            self.function_body(name)?
        } else if self.eat_word("coproc") {
            self.coprocess()?
        } else {
            return Ok(None);
        }))
    }

    /// Parses a plain name, such as that of a variable.
    fn name(&mut self) -> Read<String> {
        let name = self.run(name_byte);
        let whole = self.peek().is_none_or(meta);
        if whole && name.bytes().next().is_some_and(name_start) {
            Ok(name.to_owned())
        } else {
            Err(Unreadable::Syntax)
        }
    }

    /// Parses the body of a function: a compound command, whose redirections apply to every call.
    pub(super) fn function_body(&mut self, name: String) -> Read<ShellCommandKind> {
        if !name
            .bytes()
            .all(|byte| name_byte(byte) || b"-.:".contains(&byte))
        {
            return Err(Unreadable::Syntax);
        }
        self.linebreak()?;
        let body = self.nested(Self::command)?;
        if matches!(
            body.kind,
            ShellCommandKind::Simple { .. }
                | ShellCommandKind::Function { .. }
                | ShellCommandKind::Coprocess { .. }
        ) {
            return Err(Unreadable::Syntax);
        }
        Ok(ShellCommandKind::Function {
            name,
            body: Box::new(body),
        })
    }

    /// Parses `coproc NAME {`: a name is allowed before a compound command only.
    fn coprocess(&mut self) -> Read<ShellCommandKind> {
        self.blank()?;
        let start = self.at;
        let named = self.name();
        self.blank()?;
        let is_compound = matches!(self.peek(), Some(b'{' | b'('));
        let name = if is_compound { named.ok() } else { None };
        if name.is_none() {
            self.at = start;
        }
        Ok(ShellCommandKind::Coprocess {
            name,
            body: Box::new(self.command()?),
        })
    }

    fn closing(&mut self, word: &str) -> Read<()> {
        self.linebreak()?;
        if self.eat_word(word) {
            Ok(())
        } else {
            Err(Unreadable::Syntax)
        }
    }

    fn branches(&mut self) -> Read<ShellCommandKind> {
        let mut lists = vec![self.some_list()?];
        self.closing("then")?;
        lists.push(self.some_list()?);
        loop {
            if self.eat_word("elif") {
                lists.push(self.some_list()?);
                self.closing("then")?;
                lists.push(self.some_list()?);
                continue;
            }
            if self.eat_word("else") {
                lists.push(self.some_list()?);
            }
            self.closing("fi")?;
            return Ok(ShellCommandKind::Branches(lists));
        }
    }

    fn do_body(&mut self) -> Read<List> {
        self.closing("do")?;
        let list = self.some_list()?;
        self.closing("done")?;
        Ok(list)
    }

    fn for_loop(&mut self, arithmetic: bool) -> Read<ShellCommandKind> {
        self.blank()?;
        if arithmetic && self.eat("((") {
            let head = self.arithmetic("))")?;
            self.blank()?;
            self.eat(";");
            return Ok(ShellCommandKind::ArithmeticFor {
                head,
                body: self.do_body()?,
            });
        }
        let name = self.name()?;
        let start = self.at;
        self.linebreak()?;
        // bash does not expect a `;` on a line of its own.
        let mut closed = self.source[start..self.at].contains('\n');
        let mut words = None;
        if self.eat_word("in") {
            let found = words.insert(vec![]);
            self.blank()?;
            // Within a `case`, bash reads it as the end of that.
            if self.word_is("esac") {
                return Err(Unreadable::Syntax);
            }
            while !self.at_end() {
                found.push(self.word()?);
                self.blank()?;
            }
            closed = false;
        }
        if !closed && !self.next_is(";;") {
            self.eat(";");
        }
        Ok(ShellCommandKind::For {
            name,
            words,
            body: self.do_body()?,
        })
    }

    fn case(&mut self) -> Read<ShellCommandKind> {
        self.blank()?;
        let word = self.word()?;
        self.closing("in")?;
        let mut arms = vec![];
        loop {
            self.linebreak()?;
            if self.eat_word("esac") {
                return Ok(ShellCommandKind::Case { word, arms });
            }
            self.eat("(");
            let mut patterns = vec![];
            loop {
                self.blank()?;
                let pattern = self.word()?;
                if RESERVED.contains(&&self.source[pattern.range.clone()]) {
                    return Err(Unreadable::Syntax);
                }
                patterns.push(pattern);
                self.blank()?;
                if self.next_is("||") || !self.eat("|") {
                    break;
                }
            }
            self.expect(")")?;
            arms.push((patterns, self.nested(Self::list)?));
            if !self.eat(";;") {
                self.closing("esac")?;
                return Ok(ShellCommandKind::Case { word, arms });
            }
            if self.peek() == Some(b'&') {
                return Err(Unreadable::Syntax);
            }
        }
    }

    /// Parses the condition after `[[`: its words, brackets and operators, on one line.
    fn condition(&mut self) -> Read<Vec<Word>> {
        let mut words = vec![];
        self.nested(|parser| parser.alternatives(&mut words))?;
        if self.eat_word("]]") {
            Ok(words)
        } else {
            Err(Unreadable::Syntax)
        }
    }

    /// Parses terms joined by `&&` and `||`.
    fn alternatives(&mut self, words: &mut Vec<Word>) -> Read<()> {
        loop {
            self.term(words)?;
            self.blank()?;
            if !(self.sign("&&", words) || self.sign("||", words)) {
                return Ok(());
            }
        }
    }

    fn term(&mut self, words: &mut Vec<Word>) -> Read<()> {
        const ONE: &[u8] = b"abcdefghknoprstuvwxzGLNORS";
        const TWO: [&str; 13] = [
            "=", "==", "!=", "=~", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef",
        ];
        self.blank()?;
        if self.word_is("!") {
            self.sign("!", words);
            self.blank()?;
        }
        if self.sign("(", words) {
            self.nested(|parser| parser.alternatives(words))?;
            return if self.sign(")", words) {
                Ok(())
            } else {
                Err(Unreadable::Syntax)
            };
        }
        let first = self.operand(words)?;
        self.blank()?;
        if matches!(first.as_bytes(), [b'-', letter] if ONE.contains(letter)) {
            return self.operand(words).map(drop);
        }
        if self.process_next() || self.next_is("<<") || self.next_is(">>") {
            return Err(Unreadable::Syntax);
        }
        if !self.sign("<", words) && !self.sign(">", words) {
            let Some(operator) = TWO.iter().find(|operator| self.word_is(operator)) else {
                return Ok(());
            };
            self.sign(operator, words);
        }
        self.blank()?;
        self.operand(words)?;
        // Brackets and bars would be part of a regular expression.
        if self.at_end() && !matches!(self.peek(), None | Some(b' ' | b'\t')) {
            Err(Unreadable::Syntax)
        } else {
            Ok(())
        }
    }

    /// Parses a word of a condition, and returns it as written.
    fn operand(&mut self, words: &mut Vec<Word>) -> Read<&'s str> {
        let word = self.word()?;
        let text = &self.source[word.range.clone()];
        words.push(word);
        // A word that continues on the next line may be an operator: `-`, and `x` below.
        if matches!(text, "]]" | "!") || text.contains("\\\n") {
            Err(Unreadable::Syntax)
        } else {
            Ok(text)
        }
    }

    fn sign(&mut self, sign: &str, words: &mut Vec<Word>) -> bool {
        let start = self.at;
        let found = self.eat(sign);
        if found {
            let pieces = vec![Piece::Text(sign.to_owned())];
            words.push(Word {
                pieces,
                range: start..self.at,
                array: vec![],
            });
        }
        found
    }
}

/// Returns the redirection that `|&` adds: `2>&1`.
fn errors_too(at: usize) -> Redirect {
    let target = Word {
        pieces: vec![Piece::Text("1".into())],
        ..Word::default()
    };
    Redirect {
        operator: Operator::Duplicate,
        target,
        variable: None,
        heredoc: None,
        range: at..at,
    }
}
