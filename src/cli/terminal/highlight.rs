//! Colours of code, line by line as it arrives.

use std::sync::LazyLock;

use anstyle::{AnsiColor, Style};
use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxSet};

use super::style::{BAD, CODE, FAINT, GOOD};

static SYNTAXES: LazyLock<SyntaxSet> = LazyLock::new(SyntaxSet::load_defaults_newlines);

/// The styles of scopes, the special ones first.
static STYLES: LazyLock<Vec<(Scope, Style)>> = LazyLock::new(|| {
    let keyword = AnsiColor::Magenta.on_default();
    let number = AnsiColor::Yellow.on_default();
    let function = AnsiColor::Blue.on_default();
    let table = [
        ("comment", FAINT),
        ("string", GOOD),
        ("constant.character", GOOD),
        ("constant", number),
        ("keyword", keyword),
        ("storage", keyword),
        ("entity.name.function", function),
        ("entity.name.tag", function),
        ("support.function", function),
        ("variable.function", function),
        ("entity.name", CODE),
        ("support", CODE),
        ("markup.deleted", BAD),
        ("markup.inserted", GOOD),
    ];
    table
        .into_iter()
        .filter_map(|(name, style)| Some((Scope::new(name).ok()?, style)))
        .collect()
});

/// The state of colouring one block of code.
pub(super) struct Highlighter {
    state: ParseState,
    scopes: ScopeStack,
}

impl Highlighter {
    /// Begins a block in a language, named as after a fence. `None` if the language is unknown.
    pub(super) fn of(language: &str) -> Option<Self> {
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

    /// Divides the next line into pieces with their styles. `None` if it cannot be parsed.
    pub(super) fn pieces<'l>(&mut self, line: &'l str) -> Option<Vec<(&'l str, Style)>> {
        let ended = format!("{line}\n");
        let changes = self.state.parse_line(&ended, &SYNTAXES).ok()?;
        let mut pieces = Vec::new();
        let mut start = 0;
        for (at, change) in changes {
            let at = at.min(line.len());
            if at > start {
                pieces.push((line.get(start..at)?, self.style()));
                start = at;
            }
            self.scopes.apply(&change).ok()?;
        }
        pieces.push((line.get(start..)?, self.style()));
        Some(pieces)
    }

    fn style(&self) -> Style {
        let scopes = self.scopes.as_slice().iter().rev();
        scopes
            .filter_map(|scope| {
                let mut known = STYLES.iter();
                known.find(|(general, _)| general.is_prefix_of(*scope))
            })
            .next()
            .map_or_else(Style::new, |(_, style)| *style)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each piece has its colour, and no letter is lost, also in text that is not of the language.
    #[test]
    fn code_is_divided_into_styled_pieces() {
        let keyword = AnsiColor::Magenta.on_default();
        let number = AnsiColor::Yellow.on_default();
        let function = AnsiColor::Blue.on_default();
        let table = [
            ("rust", "let x = 41; // why", "let", keyword),
            ("rust", "let x = 41; // why", "41", number),
            ("rust", "let x = 41; // why", "// why", FAINT),
            ("python", "def f(): return 'a'", "def", keyword),
            ("typescript", "const a = \"b\"", "\"b\"", GOOD),
            ("bash", "echo \"$HOME\"", "echo", function),
        ];
        for (language, line, part, style) in table {
            let pieces = Highlighter::of(language).unwrap().pieces(line).unwrap();
            let styled: String = pieces
                .iter()
                .filter(|(_, own)| *own == style)
                .map(|(text, _)| *text)
                .collect();
            assert!(styled.contains(part), "{language} {line}: {pieces:?}");
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
        assert_eq!(highlighter.pieces("ended */").unwrap()[0].1, FAINT);
    }
}
