//! Divides code into tokens of a kind, line by line as it arrives.

use std::sync::LazyLock;

use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxSet};

static SYNTAXES: LazyLock<SyntaxSet> = LazyLock::new(SyntaxSet::load_defaults_newlines);

/// The kind of a token, which determines its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    Plain,
    Comment,
    Text,
    Constant,
    Keyword,
    Function,
    Name,
    Deleted,
    Inserted,
}

/// The kinds of scopes, the special ones first.
static KINDS: LazyLock<Vec<(Scope, TokenKind)>> = LazyLock::new(|| {
    let table = [
        ("comment", TokenKind::Comment),
        ("string", TokenKind::Text),
        ("constant.character", TokenKind::Text),
        ("constant", TokenKind::Constant),
        ("keyword", TokenKind::Keyword),
        // The prefix of a string, such as `f` in Python.
        ("storage.type.string", TokenKind::Text),
        ("storage", TokenKind::Keyword),
        ("entity.name.function", TokenKind::Function),
        ("entity.name.tag", TokenKind::Function),
        ("support.function", TokenKind::Function),
        ("variable.function", TokenKind::Function),
        ("entity.name", TokenKind::Name),
        ("support", TokenKind::Name),
        ("markup.deleted", TokenKind::Deleted),
        ("markup.inserted", TokenKind::Inserted),
    ];
    table
        .into_iter()
        .filter_map(|(name, kind)| Some((Scope::new(name).ok()?, kind)))
        .collect()
});

/// The state of dividing one block of code.
pub struct Highlighter {
    state: ParseState,
    scopes: ScopeStack,
}

impl Highlighter {
    /// Begins a block in a language, named as after a fence. `None` if the language is unknown.
    pub fn of(language: &str) -> Option<Self> {
        let token = match language {
            "" | "text" | "txt" | "plain" => return None,
            "javascript" | "jsx" | "node" | "typescript" | "tsx" | "ts" => "js",
            "console" | "shell" | "zsh" => "sh",
            "golang" => "go",
            "csharp" => "c#",
            "jsonc" | "json5" => "json",
            other => other,
        };
        let syntax = SYNTAXES.find_syntax_by_token(token)?;
        Some(Self {
            state: ParseState::new(syntax),
            scopes: ScopeStack::new(),
        })
    }

    /// Divides the next line into pieces with their kinds. `None` if it cannot be parsed.
    pub fn pieces<'l>(&mut self, line: &'l str) -> Option<Vec<(&'l str, TokenKind)>> {
        let ended = format!("{line}\n");
        let changes = self.state.parse_line(&ended, &SYNTAXES).ok()?;
        let mut pieces = Vec::new();
        let mut start = 0;
        for (at, change) in changes {
            let at = at.min(line.len());
            if at > start {
                pieces.push((line.get(start..at)?, self.kind()));
                start = at;
            }
            self.scopes.apply(&change).ok()?;
        }
        pieces.push((line.get(start..)?, self.kind()));
        Some(pieces)
    }

    fn kind(&self) -> TokenKind {
        let scopes = self.scopes.as_slice().iter().rev();
        scopes
            .filter_map(|scope| {
                let mut known = KINDS.iter();
                known.find(|(general, _)| general.is_prefix_of(*scope))
            })
            .next()
            .map_or(TokenKind::Plain, |(_, kind)| *kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each piece has its kind, and no letter is lost, also in text that is not of the language.
    #[test]
    fn code_is_divided_into_pieces_of_a_kind() {
        let table = [
            ("rust", "let x = 41; // why", "let", TokenKind::Keyword),
            ("rust", "let x = 41; // why", "41", TokenKind::Constant),
            ("rust", "let x = 41; // why", "// why", TokenKind::Comment),
            ("python", "def f(): return 'a'", "def", TokenKind::Keyword),
            ("typescript", "const a = \"b\"", "\"b\"", TokenKind::Text),
            ("python", "f\"a\"", "f", TokenKind::Text),
            ("bash", "echo \"$HOME\"", "echo", TokenKind::Function),
        ];
        for (language, line, part, kind) in table {
            let pieces = Highlighter::of(language).unwrap().pieces(line).unwrap();
            let found: String = pieces
                .iter()
                .filter(|(_, own)| *own == kind)
                .map(|(text, _)| *text)
                .collect();
            assert!(found.contains(part), "{language} {line}: {pieces:?}");
        }
        for language in ["rust", "python", "json", "yaml", "html", "sql", "c++", "go"] {
            let mut highlighter = Highlighter::of(language).unwrap();
            for line in ["\"open", "/* 中文 🦀", "}}} ]] `${", "", "\t<a b='c'"] {
                let pieces = highlighter.pieces(line).unwrap();
                let text: String = pieces.iter().map(|(text, _)| *text).collect();
                assert_eq!(text, line, "{language}");
            }
        }
        assert!(Highlighter::of("no such language").is_none());
    }

    #[test]
    fn comment_continues_on_the_next_line() {
        let mut highlighter = Highlighter::of("rust").unwrap();
        highlighter.pieces("/* begun").unwrap();
        assert_eq!(
            highlighter.pieces("ended */").unwrap()[0].1,
            TokenKind::Comment
        );
    }
}
