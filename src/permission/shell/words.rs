//! The words of a command line: quotes, escapes, substitutions, arithmetic.

use super::parse::{Parser, Read, meta, name_byte, name_start, script};
use super::syntax::{Body, Piece, Unreadable, Word};

impl Parser<'_> {
    pub(super) fn word(&mut self) -> Read<Word> {
        let word = self.word_until(false)?;
        if word.range.is_empty() { Err(Unreadable::Syntax) } else { Ok(word) }
    }

    /// One word, maybe empty. In a pattern (the right side in `[[ ]]`) brackets and bars belong to
    /// it.
    pub(super) fn word_until(&mut self, pattern: bool) -> Read<Word> {
        self.nested(|parser| parser.word_here(pattern))
    }

    fn word_here(&mut self, pattern: bool) -> Read<Word> {
        self.peek();
        let start = self.at;
        let mut pieces = Pieces::default();
        let mut brackets = 0_usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'\\' => {
                    self.at += 1;
                    let Some(letter) = self.source[self.at..].chars().next() else {
                        pieces.quoted("\\");
                        continue;
                    };
                    pieces.quoted(&self.source[self.at..self.at + letter.len_utf8()]);
                    self.at += letter.len_utf8();
                }
                b'\'' => pieces.quoted(self.single()?),
                b'"' => {
                    self.at += 1;
                    pieces.quoted("");
                    let inner = self.nested(|parser| parser.quoted(Some(b'"')))?;
                    pieces.0.extend(inner);
                }
                b'$' => self.nested(|parser| parser.dollar(&mut pieces, false))?,
                b'`' => self.nested(|parser| parser.backtick(&mut pieces, false))?,
                b'<' | b'>' if self.process_next() => {
                    pieces.0.push(Piece::Process(self.process()?));
                }
                b'(' | b')' | b'|' | b'<' | b'>' | b'&' | b';' if pattern && (byte == b'(' || brackets > 0) => {
                    brackets += usize::from(byte == b'(');
                    brackets -= usize::from(byte == b')');
                    pieces.text(&self.source[self.at..=self.at]);
                    self.at += 1;
                }
                b'|' if pattern && !self.next_is("||") => {
                    pieces.text("|");
                    self.at += 1;
                }
                byte if meta(byte) => break,
                // `[` alone is the program of that name.
                b'[' if self.text.get(self.at + 1).is_none_or(|next| meta(*next)) => {
                    pieces.text("[");
                    self.at += 1;
                }
                b'*' | b'?' | b'[' => {
                    pieces.0.push(Piece::Glob(char::from(byte)));
                    self.at += 1;
                }
                b'{' | b',' | b'}' => {
                    pieces.0.push(Piece::Brace(char::from(byte)));
                    self.at += 1;
                }
                b'~' if self.at == start => {
                    self.at += 1;
                    let from = self.at;
                    while self.text.get(self.at).is_some_and(|byte| name_byte(*byte) || b"-+.".contains(byte)) {
                        self.at += 1;
                    }
                    pieces.0.push(Piece::Tilde(self.source[from..self.at].to_owned()));
                }
                _ => {
                    let from = self.at;
                    while self.text.get(self.at).is_some_and(|byte| !meta(*byte) && !b"\\'\"$`*?[{,}".contains(byte)) {
                        self.at += 1;
                    }
                    pieces.text(&self.source[from..self.at]);
                }
            }
        }
        Ok(Word { pieces: pieces.0, range: start..self.at, array: vec![] })
    }

    /// `<(…)` or `>(…)`, from its sign on.
    fn process(&mut self) -> Read<Vec<super::syntax::Item>> {
        self.settled()?;
        self.at += 1;
        self.expect("(")?;
        let list = self.some_list()?;
        self.expect(")")?;
        self.settled()?;
        Ok(list)
    }

    fn single(&mut self) -> Read<&str> {
        let start = self.at + 1;
        let length = self.text[start..].iter().position(|byte| *byte == b'\'').ok_or(Unreadable::Unclosed)?;
        self.at = start + length + 1;
        Ok(&self.source[start..start + length])
    }

    /// Text in which only `$`, back-ticks and some backslashes mean something: double quotes, and
    /// here-docs where `end` is none.
    pub(super) fn quoted(&mut self, end: Option<u8>) -> Read<Vec<Piece>> {
        let mut pieces = Pieces::default();
        loop {
            let Some(byte) = self.peek() else {
                return if end.is_some() { Err(Unreadable::Unclosed) } else { Ok(pieces.0) };
            };
            match byte {
                byte if Some(byte) == end => {
                    self.at += 1;
                    return Ok(pieces.0);
                }
                b'\\' => {
                    let next = self.text.get(self.at + 1).copied();
                    let escapes = matches!(next, Some(b'$' | b'`' | b'\\')) || (next.is_some() && next == end);
                    self.at += 1 + usize::from(escapes);
                    pieces.quoted(&self.source[self.at - 1..self.at]);
                }
                b'$' => self.nested(|parser| parser.dollar(&mut pieces, true))?,
                b'`' => self.nested(|parser| parser.backtick(&mut pieces, true))?,
                _ => {
                    let from = self.at;
                    while let Some(byte) = self.text.get(self.at)
                        && !b"\\$`".contains(byte)
                        && Some(*byte) != end
                    {
                        self.at += 1;
                    }
                    pieces.quoted(&self.source[from..self.at]);
                }
            }
        }
    }

    fn dollar(&mut self, pieces: &mut Pieces, quoted: bool) -> Read<()> {
        self.at += 1;
        match self.peek() {
            Some(b'(') => {
                if self.next_is("((") {
                    let start = (self.at, self.heredocs.len());
                    self.eat("((");
                    match self.arithmetic("))") {
                        Ok(inner) => {
                            pieces.0.push(Piece::Arithmetic(inner));
                            return Ok(());
                        }
                        // What is not closed as a sum is not closed as a command either.
                        Err(Unreadable::Syntax) => {}
                        Err(end) => return Err(end),
                    }
                    self.at = start.0;
                    self.heredocs.truncate(start.1);
                }
                self.at += 1;
                self.settled()?;
                let list = self.nested(Self::list)?;
                self.expect(")")?;
                self.settled()?;
                pieces.0.push(Piece::Command(Body::Inline(list)));
            }
            Some(b'[') => {
                self.at += 1;
                pieces.0.push(Piece::Arithmetic(self.arithmetic("]")?));
            }
            Some(b'{') => {
                self.at += 1;
                pieces.0.push(self.parameter(quoted)?);
            }
            Some(b'\'') if !quoted => {
                let text = self.ansi()?;
                pieces.quoted(&text);
            }
            Some(b'"') if !quoted => {}
            Some(byte) if name_start(byte) => {
                let name = self.name();
                pieces.0.push(Piece::Parameter { name, operator: String::new(), inner: vec![], quoted });
            }
            Some(byte) if byte.is_ascii_digit() || b"@*#?-$!".contains(&byte) => {
                self.at += 1;
                let name = char::from(byte).to_string();
                pieces.0.push(Piece::Parameter { name, operator: String::new(), inner: vec![], quoted });
            }
            _ if quoted => pieces.quoted("$"),
            _ => pieces.text("$"),
        }
        Ok(())
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(byte) = self.peek()
            && name_byte(byte)
        {
            name.push(char::from(byte));
            self.at += 1;
        }
        name
    }

    /// `$'…'`, decoded as bash does.
    fn ansi(&mut self) -> Read<String> {
        self.at += 1;
        let mut bytes: Vec<u8> = vec![];
        loop {
            let byte = *self.text.get(self.at).ok_or(Unreadable::Unclosed)?;
            self.at += 1;
            if byte == b'\'' {
                break;
            }
            if byte != b'\\' {
                bytes.push(byte);
                continue;
            }
            let letter = *self.text.get(self.at).ok_or(Unreadable::Unclosed)?;
            self.at += 1;
            match letter {
                b'n' => bytes.push(b'\n'),
                b't' => bytes.push(b'\t'),
                b'r' => bytes.push(b'\r'),
                b'a' => bytes.push(7),
                b'b' => bytes.push(8),
                b'e' | b'E' => bytes.push(27),
                b'f' => bytes.push(12),
                b'v' => bytes.push(11),
                b'x' => bytes.push(u8::try_from(self.digits(16, 2)).unwrap_or(b'?')),
                b'u' | b'U' => {
                    let code = self.digits(16, if letter == b'u' { 4 } else { 8 });
                    let letter = char::from_u32(code).ok_or(Unreadable::Syntax)?;
                    bytes.extend(letter.to_string().bytes());
                }
                b'0'..=b'7' => {
                    self.at -= 1;
                    bytes.push(self.digits(8, 3).to_le_bytes()[0]);
                }
                b'c' => {
                    let letter = *self.text.get(self.at).ok_or(Unreadable::Unclosed)?;
                    self.at += 1;
                    bytes.push(letter & 0x1f);
                }
                b'\\' | b'\'' | b'"' | b'?' => bytes.push(letter),
                letter => bytes.extend([b'\\', letter]),
            }
        }
        // bash ends the string at a NUL; nobody means that.
        if bytes.contains(&0) {
            return Err(Unreadable::Syntax);
        }
        String::from_utf8(bytes).map_err(|_| Unreadable::Syntax)
    }

    fn digits(&mut self, radix: u32, most: usize) -> u32 {
        let mut value = 0;
        for _ in 0..most {
            let Some(digit) = self.text.get(self.at).and_then(|byte| char::from(*byte).to_digit(radix)) else { break };
            value = value * radix + digit;
            self.at += 1;
        }
        value
    }

    fn backtick(&mut self, pieces: &mut Pieces, quoted: bool) -> Read<()> {
        self.at += 1;
        let mut inner = String::new();
        loop {
            let letter = self.source[self.at..].chars().next().ok_or(Unreadable::Unclosed)?;
            self.at += letter.len_utf8();
            match letter {
                '`' => break,
                '\\' => {
                    let next = self.source[self.at..].chars().next().ok_or(Unreadable::Unclosed)?;
                    if !(matches!(next, '`' | '\\' | '$') || (quoted && next == '"')) {
                        inner.push('\\');
                    }
                    inner.push(next);
                    self.at += next.len_utf8();
                }
                letter => inner.push(letter),
            }
        }
        self.commands = self.commands.checked_sub(1).ok_or(Unreadable::TooMany)?;
        let script = script(&inner, self.depth)?;
        pieces.0.push(Piece::Command(Body::Apart(Box::new(script))));
        Ok(())
    }

    /// After `${`.
    fn parameter(&mut self, quoted: bool) -> Read<Piece> {
        let mut operator = String::new();
        let mut name = String::new();
        if self.next_is("!") && !self.next_is("!}") {
            self.at += 1;
            operator.push('!');
        } else if self.next_is("#") && !self.next_is("#}") {
            self.at += 1;
            operator.push('#');
        }
        match self.peek() {
            Some(byte) if name_start(byte) => name = self.name(),
            Some(byte) if byte.is_ascii_digit() => {
                while let Some(byte) = self.peek().filter(u8::is_ascii_digit) {
                    name.push(char::from(byte));
                    self.at += 1;
                }
            }
            Some(byte) if b"@*#?-$!".contains(&byte) => {
                name.push(char::from(byte));
                self.at += 1;
            }
            _ => return Err(Unreadable::Syntax),
        }
        let mut inner = vec![];
        if self.eat("[") {
            let start = self.at;
            inner = self.arithmetic("]")?;
            operator.push('[');
            operator.push_str(&self.source[start..self.at]);
        }
        let start = self.at;
        let mut word = Pieces::default();
        loop {
            match self.peek().ok_or(Unreadable::Unclosed)? {
                b'}' => break,
                b'\\' => {
                    self.at += 1;
                    let letter = self.source[self.at..].chars().next().ok_or(Unreadable::Unclosed)?;
                    word.quoted(&self.source[self.at..self.at + letter.len_utf8()]);
                    self.at += letter.len_utf8();
                }
                b'\'' if !quoted => word.quoted(self.single()?),
                b'"' => {
                    self.at += 1;
                    let pieces = self.nested(|parser| parser.quoted(Some(b'"')))?;
                    word.0.extend(pieces);
                }
                b'$' => self.nested(|parser| parser.dollar(&mut word, quoted))?,
                b'`' => self.nested(|parser| parser.backtick(&mut word, quoted))?,
                b'<' | b'>' if !quoted && self.process_next() => {
                    word.0.push(Piece::Process(self.process()?));
                }
                _ => {
                    let letter = self.source[self.at..].chars().next().ok_or(Unreadable::Unclosed)?;
                    word.text(&self.source[self.at..self.at + letter.len_utf8()]);
                    self.at += letter.len_utf8();
                }
            }
        }
        operator.push_str(&self.source[start..self.at]);
        self.at += 1;
        inner.extend(word.0);
        Ok(Piece::Parameter { name, operator, inner, quoted })
    }

    /// An arithmetic expression up to its end, which is consumed.
    pub(super) fn arithmetic(&mut self, end: &str) -> Read<Vec<Piece>> {
        self.nested(|parser| parser.expression(end))
    }

    fn expression(&mut self, end: &str) -> Read<Vec<Piece>> {
        let mut pieces = Pieces::default();
        let (mut round, mut square) = (0_usize, 0_usize);
        loop {
            if round == 0 && square == 0 && self.eat(end) {
                return Ok(pieces.0);
            }
            match self.peek().ok_or(Unreadable::Unclosed)? {
                b'(' => round += 1,
                b')' => round = round.checked_sub(1).ok_or(Unreadable::Syntax)?,
                b'[' => square += 1,
                b']' => square = square.checked_sub(1).ok_or(Unreadable::Syntax)?,
                b'\\' => {
                    self.at += 1;
                    let letter = self.source[self.at..].chars().next().ok_or(Unreadable::Unclosed)?;
                    pieces.quoted(&self.source[self.at..self.at + letter.len_utf8()]);
                    self.at += letter.len_utf8();
                    continue;
                }
                b'\'' => {
                    pieces.quoted(self.single()?);
                    continue;
                }
                b'"' => {
                    self.at += 1;
                    let inner = self.nested(|parser| parser.quoted(Some(b'"')))?;
                    pieces.0.extend(inner);
                    continue;
                }
                b'$' => {
                    self.nested(|parser| parser.dollar(&mut pieces, true))?;
                    continue;
                }
                b'`' => {
                    self.nested(|parser| parser.backtick(&mut pieces, true))?;
                    continue;
                }
                // A command, not a sum: `((` was two subshells.
                b'\n' | b';' if end == "]" => return Err(Unreadable::Syntax),
                _ => {}
            }
            let letter = self.source[self.at..].chars().next().ok_or(Unreadable::Unclosed)?;
            pieces.text(&self.source[self.at..self.at + letter.len_utf8()]);
            self.at += letter.len_utf8();
        }
    }
}

/// Pieces being collected; neighbours of one kind grow together.
#[derive(Default)]
struct Pieces(Vec<Piece>);

impl Pieces {
    fn text(&mut self, text: &str) {
        match self.0.last_mut() {
            Some(Piece::Text(before)) => before.push_str(text),
            _ => self.0.push(Piece::Text(text.to_owned())),
        }
    }

    fn quoted(&mut self, text: &str) {
        match self.0.last_mut() {
            Some(Piece::Quoted(before)) => before.push_str(text),
            _ => self.0.push(Piece::Quoted(text.to_owned())),
        }
    }
}
