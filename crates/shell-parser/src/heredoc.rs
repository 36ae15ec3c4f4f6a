//! Here-documents: their delimiters and their bodies.

use super::syntax::{Heredoc, Operator, Piece, Redirect, Script, Unreadable, Word};
use super::{Parser, Read, meta};

/// Parses the body of an unquoted here-document.
fn body(source: &str, depth: usize) -> Read<Script> {
    let mut parser = Parser::new(source, depth);
    let pieces = parser.quoted(None)?;
    if parser.waits() {
        return Err(Unreadable::Unclosed);
    }
    Ok(Script {
        source: source.to_owned(),
        list: vec![],
        pieces,
        heredocs: parser.heredocs,
    })
}

impl Parser<'_> {
    /// Returns whether the body of a here-document is still missing.
    pub(super) fn waits(&self) -> bool {
        self.heredocs.iter().any(|doc| doc.body.is_none())
    }

    /// Parses the rest after `<<`: `-`, and a delimiter that is a single name, plain, escaped or
    /// quoted as a whole.
    pub(super) fn heredoc(&mut self, start: usize) -> Read<Redirect> {
        let strip = self.eat("-");
        self.blank()?;
        let quote = ["'", "\"", "\\"].into_iter().find(|quote| self.eat(quote));
        let is_delimiter_byte =
            |byte: u8| byte.is_ascii_alphanumeric() || b"_-.!%+:@".contains(&byte);
        let delimiter = self.run(is_delimiter_byte).to_owned();
        let closed = quote.is_none_or(|quote| quote == "\\" || self.eat(quote));
        if delimiter.is_empty() || !closed || self.peek().is_some_and(|byte| !meta(byte)) {
            return Err(Unreadable::Syntax);
        }
        let heredoc = Some(self.heredocs.len());
        self.heredocs.push(Heredoc {
            delimiter,
            quoted: quote.is_some(),
            strip,
            body: None,
        });
        let target = Word::default();
        let range = start..self.at;
        Ok(Redirect {
            operator: Operator::HereDoc,
            target,
            variable: None,
            heredoc,
            range,
        })
    }

    /// Consumes a newline outside of words, with the bodies of the preceding here-documents.
    pub(super) fn newline(&mut self) -> Read<()> {
        self.at += 1;
        for index in 0..self.heredocs.len() {
            if self.heredocs[index].body.is_none() {
                self.heredoc_body(index)?;
            }
        }
        Ok(())
    }

    fn heredoc_body(&mut self, index: usize) -> Read<()> {
        let Heredoc {
            delimiter,
            quoted,
            strip,
            ..
        } = &self.heredocs[index];
        let delimiter = delimiter.clone();
        let quoted = *quoted;
        let strip = *strip;
        let mut text = String::new();
        let mut joined = false;
        loop {
            if self.at >= self.text.len() {
                return Err(Unreadable::Unclosed);
            }
            let line = self.run(|byte| byte != b'\n');
            self.at = (self.at + 1).min(self.text.len());
            let line = if strip {
                line.trim_start_matches('\t')
            } else {
                line
            };
            let ends = line == delimiter;
            // In an expanded here-document a continued line is joined with the next one, which then
            // is not a delimiter. The text is refused if that would make a difference, if tabs are
            // stripped, and in a substitution.
            let continues =
                !quoted && line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1;
            if (joined && (ends || text_ends_with(&text, line, &delimiter)))
                || (continues && (strip || self.inline > 0))
            {
                return Err(Unreadable::Syntax);
            }
            if ends {
                break;
            }
            // Within a substitution, bash ends it there if a bracket follows.
            if self.inline > 0 && line.starts_with(&delimiter) {
                return Err(Unreadable::Syntax);
            }
            joined = continues;
            text.push_str(if continues {
                &line[..line.len() - 1]
            } else {
                line
            });
            if !continues {
                text.push('\n');
            }
        }
        let body = if quoted {
            Script {
                source: text.clone(),
                pieces: vec![Piece::Quoted(text)],
                ..Script::default()
            }
        } else {
            self.nested(|parser| body(&text, parser.depth))?
        };
        self.heredocs[index].body = Some(body);
        Ok(())
    }
}

/// Returns whether the last line of a text, joined with this one, would be the delimiter.
fn text_ends_with(text: &str, line: &str, delimiter: &str) -> bool {
    let last = text.rsplit('\n').next().unwrap_or_default();
    delimiter.strip_prefix(last) == Some(line)
}
