//! Words: quotes, escapes, substitutions, arithmetic.

use std::borrow::Cow;

use super::simple::DECLARES;
use super::syntax::{Body, Piece, Unreadable, Word};
use super::{Parser, RESERVED, Read, meta, name_byte, name_start, parse};

/// The names of special parameters.
const SIGNS: &[u8] = b"@*#?-$!";

impl Parser<'_> {
    /// Parses one word, which has to come next.
    pub(super) fn word(&mut self) -> Read<Word> {
        let word = self.maybe_word()?;
        if word.range.is_empty() {
            Err(Unreadable::Syntax)
        } else {
            Ok(word)
        }
    }

    /// Parses one word; returns an empty one if there is none.
    pub(super) fn maybe_word(&mut self) -> Read<Word> {
        self.nested(Self::word_here)
    }

    fn word_here(&mut self) -> Read<Word> {
        let start = self.at;
        let mut pieces = Pieces::default();
        let mut joined = false;
        if self.process_next() {
            self.at += 2;
            // bash reads two brackets as arithmetic.
            if self.peek() == Some(b'(') {
                return Err(Unreadable::Syntax);
            }
            pieces.0.push(Piece::Process(self.inline(start)?));
            // It has to be a word of its own.
            if !self.at_end() || self.process_next() {
                return Err(Unreadable::Syntax);
            }
        } else if self.eat("~") {
            let user = self.run(|byte| name_byte(byte) || b"-+.".contains(&byte));
            pieces.0.push(Piece::Tilde(user.to_owned()));
        }
        while let Some(byte) = self.peek() {
            match byte {
                b'\\' if self.next_is("\\\n") => {
                    if !self.goes_on(pieces.0.last())? {
                        break;
                    }
                    joined = true;
                }
                b'\\' => {
                    self.at += 1;
                    pieces.quoted(self.letter()?);
                }
                b'\'' => pieces.quoted(self.single()?),
                b'"' => {
                    self.at += 1;
                    pieces.quoted("");
                    pieces
                        .0
                        .extend(self.nested(|parser| parser.quoted(Some(b'"')))?);
                }
                b'$' => self.nested(|parser| parser.dollar(&mut pieces, false))?,
                b'`' => self.nested(|parser| parser.backtick(&mut pieces, false))?,
                byte if meta(byte) => break,
                // `[` alone is the program of that name.
                b'[' if self.text.get(self.at + 1).is_none_or(|next| meta(*next)) => {
                    pieces.text(self.letter()?)
                }
                b'*' | b'?' | b'[' => {
                    pieces.0.push(Piece::Glob(char::from(byte)));
                    self.at += 1;
                }
                b'{' | b',' | b'}' => {
                    pieces.0.push(Piece::Brace(char::from(byte)));
                    self.at += 1;
                }
                _ => pieces.text(self.run(|byte| !meta(byte) && !b"\\'\"$`*?[{,}".contains(&byte))),
            }
        }
        self.whole(&self.source[start..self.at], joined)?;
        Ok(Word {
            pieces: pieces.0,
            range: start..self.at,
            array: vec![],
        })
    }

    /// Returns whether a word continues on the next line. Fails if that would change its meaning.
    fn goes_on(&mut self, last: Option<&Piece>) -> Read<bool> {
        let end = self.at;
        while self.eat("\\\n") {}
        let next = self.peek();
        if next.is_none_or(|byte| matches!(byte, b' ' | b'\t' | b'\n')) {
            self.at = end;
            return Ok(false);
        }
        let grows = matches!(last, Some(Piece::Parameter { .. } | Piece::Tilde(_)));
        if grows || next.is_some_and(meta) {
            Err(Unreadable::Syntax)
        } else {
            Ok(true)
        }
    }

    /// Fails if bash reads more into the text than a word.
    fn whole(&self, text: &str, joined: bool) -> Read<()> {
        let text = if joined {
            Cow::Owned(text.replace("\\\n", ""))
        } else {
            Cow::Borrowed(text)
        };
        // `{a[1]}>` may be a variable that gets a descriptor, and `2>` contains a descriptor.
        let number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let descriptor = number || (text.starts_with('{') && text.ends_with('}'));
        if self.process_next() || (descriptor && matches!(self.peek(), Some(b'<' | b'>'))) {
            return Err(Unreadable::Syntax);
        }
        if joined {
            let name = text.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
            if RESERVED.contains(&&*text)
                || DECLARES.contains(&&*text)
                || name.starts_with(['=', '+', '['])
            {
                return Err(Unreadable::Syntax);
            }
        }
        Ok(())
    }

    /// Parses single quotes, and returns the text between them.
    fn single(&mut self) -> Read<&str> {
        self.at += 1;
        let start = self.at;
        self.run(|byte| byte != b'\'');
        let end = self.at;
        if self.eat("'") {
            Ok(&self.source[start..end])
        } else {
            Err(Unreadable::Unclosed)
        }
    }

    /// Parses text in which only `$`, backticks and some backslashes are special: double quotes, or
    /// a here-document if `end` is `None`, whose continued lines are joined already.
    pub(super) fn quoted(&mut self, end: Option<u8>) -> Read<Vec<Piece>> {
        let mut pieces = Pieces::default();
        loop {
            let Some(byte) = self.peek() else {
                return if end.is_some() {
                    Err(Unreadable::Unclosed)
                } else {
                    Ok(pieces.0)
                };
            };
            match byte {
                byte if Some(byte) == end => {
                    self.at += 1;
                    return Ok(pieces.0);
                }
                b'\\' if self.eat("\\\n") => {}
                b'\\' => {
                    let next = self.text.get(self.at + 1).copied();
                    let escapes = matches!(next, Some(b'$' | b'`' | b'\\'))
                        || (next.is_some() && next == end);
                    self.at += 1 + usize::from(escapes);
                    pieces.quoted(&self.source[self.at - 1..self.at]);
                }
                b'$' => self.nested(|parser| parser.dollar(&mut pieces, true))?,
                b'`' => self.nested(|parser| parser.backtick(&mut pieces, true))?,
                _ => pieces.quoted(self.run(|byte| !b"\\$`".contains(&byte) && Some(byte) != end)),
            }
        }
    }

    /// Parses `$` and everything that belongs to it. `quoted` means within double quotes, a
    /// here-document or arithmetic.
    fn dollar(&mut self, pieces: &mut Pieces, quoted: bool) -> Read<()> {
        let start = self.at;
        self.at += 1;
        if self.eat("((") {
            pieces.0.push(Piece::Arithmetic(self.arithmetic("))")?));
        } else if self.eat("(") {
            pieces.0.push(Piece::Command {
                body: Body::Inline(self.inline(start)?),
                quoted,
            });
        } else if self.eat("{") {
            pieces.0.push(self.parameter(quoted)?);
        } else if !quoted && self.eat("'") {
            let text = self.ansi_c()?;
            pieces.quoted(&text);
        } else if let Some(name) = self.variable(1) {
            pieces.0.push(Piece::Parameter {
                before: None,
                name,
                operator: String::new(),
                inner: vec![],
                quoted,
            });
        } else {
            match self.peek() {
                // Old arithmetic, translated text, or a sign that the next line completes.
                Some(b'[') => return Err(Unreadable::Syntax),
                Some(b'\\') if self.next_is("\\\n") => return Err(Unreadable::Syntax),
                Some(b'"' | b'\'') if !quoted => return Err(Unreadable::Syntax),
                _ if quoted => pieces.quoted("$"),
                _ => pieces.text("$"),
            }
        }
        Ok(())
    }

    /// Parses the name of a variable, a special parameter, or a positional parameter with up to
    /// `digits` digits.
    fn variable(&mut self, digits: usize) -> Option<String> {
        let start = self.at;
        match self.peek()? {
            byte if name_start(byte) => drop(self.run(name_byte)),
            byte if byte.is_ascii_digit() => {
                self.at += self.text[start..]
                    .iter()
                    .take(digits)
                    .take_while(|byte| byte.is_ascii_digit())
                    .count();
            }
            byte if SIGNS.contains(&byte) => self.at += 1,
            _ => return None,
        }
        Some(self.source[start..self.at].to_owned())
    }

    /// Decodes the text after `$'` like bash, as far as all versions agree.
    pub(super) fn ansi_c(&mut self) -> Read<String> {
        let mut bytes: Vec<u8> = vec![];
        loop {
            let letter = self.letter()?;
            if letter == "'" {
                break;
            }
            if letter != "\\" {
                bytes.extend(letter.bytes());
                continue;
            }
            let byte = match self.letter()? {
                "n" => b'\n',
                "t" => b'\t',
                "r" => b'\r',
                "a" => 7,
                "b" => 8,
                "e" | "E" => 27,
                "f" => 12,
                "v" => 11,
                "\\" => b'\\',
                "'" => b'\'',
                "\"" => b'"',
                "x" => u8::try_from(self.number(16, 2)?).map_err(|_| Unreadable::Syntax)?,
                "u" | "U" => {
                    let wide = self.text[self.at - 1] == b'U';
                    let code = self.number(16, if wide { 8 } else { 4 })?;
                    let letter = char::from_u32(code).ok_or(Unreadable::Syntax)?;
                    if code < 32 || code == 127 {
                        return Err(Unreadable::Syntax);
                    }
                    bytes.extend(letter.to_string().bytes());
                    continue;
                }
                digit if digit.as_bytes().first().is_some_and(u8::is_ascii_digit) => {
                    self.at -= 1;
                    u8::try_from(self.number(8, 3)?).map_err(|_| Unreadable::Syntax)?
                }
                _ => return Err(Unreadable::Syntax),
            };
            bytes.push(byte);
        }
        // bash ends the string at a NUL, and uses two other characters internally.
        if bytes.iter().any(|byte| matches!(byte, 0 | 1 | 127)) {
            return Err(Unreadable::Syntax);
        }
        String::from_utf8(bytes).map_err(|_| Unreadable::Syntax)
    }

    /// Parses a number of at least one and at most `most` digits.
    fn number(&mut self, radix: u32, most: usize) -> Read<u32> {
        let digits = self.text[self.at..]
            .iter()
            .take(most)
            .take_while(|byte| char::from(**byte).is_digit(radix));
        let end = self.at + digits.count();
        let number = u32::from_str_radix(&self.source[self.at..end], radix);
        self.at = end;
        number.map_err(|_| Unreadable::Syntax)
    }

    /// Parses backticks without escapes in them.
    fn backtick(&mut self, pieces: &mut Pieces, quoted: bool) -> Read<()> {
        self.at += 1;
        let inner = self.run(|byte| byte != b'`');
        if !self.eat("`") {
            return Err(Unreadable::Unclosed);
        }
        if inner.contains('\\') {
            return Err(Unreadable::Syntax);
        }
        self.one_command()?;
        let body = Body::Apart(Box::new(parse(inner, self.depth)?));
        pieces.0.push(Piece::Command { body, quoted });
        Ok(())
    }

    /// Parses the rest after `${`.
    fn parameter(&mut self, quoted: bool) -> Read<Piece> {
        let before = ['!', '#']
            .into_iter()
            .find(|sign| self.next_is(&sign.to_string()) && !self.next_is(&format!("{sign}}}")));
        self.at += usize::from(before.is_some());
        let alone = before.is_some();
        let name = self.variable(4).ok_or(Unreadable::Syntax)?;
        if alone
            && name
                .bytes()
                .all(|byte| SIGNS.contains(&byte) && !b"@*".contains(&byte))
        {
            return Err(Unreadable::Syntax);
        }
        let start = self.at;
        let mut inner = vec![];
        if self.eat("[") && !(self.eat("@]") || self.eat("*]")) {
            inner.push(Piece::Arithmetic(self.arithmetic("]")?));
        }
        if alone && (self.eat("@") || self.eat("*")) {
            // `${!x*}`: names with this prefix.
        } else if self.next_is(":")
            && !matches!(self.text.get(self.at + 1), Some(b'-' | b'=' | b'?' | b'+'))
        {
            self.at += 1;
            inner.push(Piece::Arithmetic(self.arithmetic("}")?));
            self.at -= 1;
        } else if !self.next_is("}") {
            const TESTS: [&str; 8] = [":-", ":=", ":?", ":+", "-", "=", "?", "+"];
            const EDITS: [&str; 6] = ["#", "%", "/", "^", ",", "@"];
            let known = TESTS.iter().chain(&EDITS).any(|sign| self.eat(sign));
            if !known || (alone && !self.next_is("}")) {
                return Err(Unreadable::Syntax);
            }
            inner.extend(self.operand_of_parameter(quoted)?);
        }
        let operator = self.source[start..self.at].to_owned();
        self.expect("}")?;
        Ok(Piece::Parameter {
            before,
            name,
            operator,
            inner,
            quoted,
        })
    }

    /// Parses the word of `${x:-word}`, on one line. Single quotes are accepted only if they quote
    /// for certain.
    fn operand_of_parameter(&mut self, quoted: bool) -> Read<Vec<Piece>> {
        let mut word = Pieces::default();
        loop {
            match self.peek().ok_or(Unreadable::Unclosed)? {
                b'}' => return Ok(word.0),
                b'\\' => {
                    self.at += 1;
                    let letter = self.letter()?;
                    if matches!(letter, "'" | "{" | "}" | "\n" | "`") {
                        return Err(Unreadable::Syntax);
                    }
                    word.quoted(letter);
                }
                b'\'' if !quoted => word.quoted(self.single()?),
                b'"' => {
                    self.at += 1;
                    word.0
                        .extend(self.nested(|parser| parser.quoted(Some(b'"')))?);
                }
                // Within double quotes `$"` is translated nevertheless. The decoded text of `$'`
                // loses its quotes in `"$(a ${x:-$'\x24(b)'})"`, and bash runs it.
                b'$' if self.next_is("$\"") || self.next_is("$'") => {
                    return Err(Unreadable::Syntax);
                }
                b'$' => self.nested(|parser| parser.dollar(&mut word, quoted))?,
                b'\'' | b'`' | b'{' | b'\n' => return Err(Unreadable::Syntax),
                // `((a ${x#)} ))` is two subshells.
                b'(' | b')' if self.sum => return Err(Unreadable::Syntax),
                b'<' | b'>' if self.next_is("<(") || self.next_is(">(") => {
                    return Err(Unreadable::Syntax);
                }
                _ => word.text(self.letter()?),
            }
        }
    }

    /// Parses arithmetic and consumes its end: numbers, names, operators, balanced round brackets,
    /// and expansions with `$`. A subscript or an offset has no blanks and no comparisons.
    pub(super) fn arithmetic(&mut self, end: &str) -> Read<Vec<Piece>> {
        let outer = self.sum;
        self.sum |= end == "))";
        let pieces = self.nested(|parser| parser.sum(end))?;
        self.sum = outer;
        Ok(pieces)
    }

    /// Parses arithmetic up to `end`, which is `))`, or `}` for an offset, or `]` for a subscript.
    fn sum(&mut self, end: &str) -> Read<Vec<Piece>> {
        let signs: &[u8] = match end {
            "))" => b" \t+-*/%<>=!&|^~?:,;()",
            "}" => b" +-*/%:",
            _ => b"+-*/%",
        };
        let mut pieces = Pieces::default();
        let mut open = 0_usize;
        loop {
            if open == 0 && self.eat(end) {
                let is_empty_subscript = pieces.0.is_empty() && end == "]";
                return if is_empty_subscript {
                    Err(Unreadable::Syntax)
                } else {
                    Ok(pieces.0)
                };
            }
            match self.peek().ok_or(Unreadable::Unclosed)? {
                b'$' => {
                    self.nested(|parser| parser.dollar(&mut pieces, true))?;
                    continue;
                }
                b'(' if signs.contains(&b'(') => open += 1,
                b')' if signs.contains(&b')') => {
                    open = open.checked_sub(1).ok_or(Unreadable::Syntax)?
                }
                byte if name_byte(byte) || signs.contains(&byte) => {}
                _ => return Err(Unreadable::Syntax),
            }
            pieces.text(self.letter()?);
        }
    }
}

/// Collects pieces, and merges neighbours of the same kind.
#[derive(Default)]
struct Pieces(Vec<Piece>);

impl Pieces {
    /// Adds unquoted text.
    fn text(&mut self, text: &str) {
        match self.0.last_mut() {
            Some(Piece::Text(before)) => before.push_str(text),
            _ => self.0.push(Piece::Text(text.to_owned())),
        }
    }

    /// Adds quoted text.
    fn quoted(&mut self, text: &str) {
        match self.0.last_mut() {
            Some(Piece::Quoted(before)) => before.push_str(text),
            _ => self.0.push(Piece::Quoted(text.to_owned())),
        }
    }
}
