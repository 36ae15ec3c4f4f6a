//! Lines of code, and detection of definitions by simple patterns for all common languages.

use std::sync::LazyLock;

use grep_matcher::{Captures as _, Matcher as _};
use grep_regex::RegexMatcher;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CodeLine {
    pub(super) path: String,
    /// The line number, from 1.
    pub(super) number: usize,
    pub(super) text: String,
}

/// The definition that a line contains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Definition {
    /// The keyword, such as `fn`, `struct` or `class`; `#` for a heading, empty if there is no
    /// keyword.
    pub(super) kind: String,
    pub(super) name: String,
    /// The visibility: 2 public, 1 within the package, 0 unspecified.
    pub(super) visibility: u8,
}

/// Keywords of definitions.
const KINDS: &str = "fn|struct|enum|union|trait|type|mod|const|static|macro_rules!|class|interface|def|func|function|\
    fun|module|object|record|namespace|protocol|let|var|val|#define";

/// A pattern for the text before the name of a function without a keyword, as in C and Java.
const TYPED: &str =
    r"^((?:\s*(?:public|private|protected|internal|static)\s)?)[A-Za-z_][\w:<>,*&\[\] ]*[\s*&]()";

/// Returns a pattern for `grep` that finds definitions by a pattern for their names. It may find
/// other lines too.
pub(super) fn defining(name: &str) -> String {
    format!(r"(?:\b|#)(?:{KINDS})\s+(?:\([^)]*\)\s*|self\.|\*)?{name}|{TYPED}{name}\s*\([^;=]*$")
}

/// Patterns with three groups each: modifiers, keyword, name.
static PATTERNS: LazyLock<Vec<RegexMatcher>> = LazyLock::new(|| {
    const BEFORE: &str = "pub|pub\\([^)]*\\)|export|default|async|unsafe|extern|static|public|private|protected|internal|\
        final|abstract|inline|declare|virtual|override|sealed|partial|data|suspend|constexpr|readonly|local|typedef|\
        const|\"[^\"]*\"";
    let own_line = r"^\s*(?:#\[[^\]]*\]\s*|\w+! *[{(]\s*)?";
    let keyword = format!(
        r"{own_line}((?:(?:{BEFORE})\s+)*)({KINDS})\s+(?:\([^)]*\)\s*|self\.|\*)?([A-Za-z_$][\w$]*)"
    );
    let typed = format!(r"{TYPED}([A-Za-z_]\w*)\s*\([^;=]*$");
    let all = [
        &keyword,
        r"^\s*(unsafe )?(impl)(?:<.*?>)?\s+([^{]+?)\s*(?:\{.*)?$",
        &typed,
        r"^(#)(#*) (.+)$",
    ];
    all.iter()
        .filter_map(|pattern| RegexMatcher::new(pattern).ok())
        .collect()
});

impl CodeLine {
    /// Returns the definition in the line. In prose files only headings count.
    pub(super) fn definition(&self) -> Option<Definition> {
        let patterns = if self.is_prose() {
            PATTERNS.get(3..)?
        } else {
            PATTERNS.get(..3)?
        };
        let (before, kind, name) = patterns.iter().find_map(|pattern| {
            let mut groups = pattern.new_captures().ok()?;
            pattern
                .captures(self.text.as_bytes(), &mut groups)
                .ok()?
                .then_some(())?;
            let group = |at| {
                groups
                    .get(at)
                    .map_or(Some(""), |found| self.text.get(found.start()..found.end()))
            };
            let rest = self.text.get(groups.get(3)?.end()..)?.trim_start();
            // "static void main(" defines no constant.
            let is_typed =
                ["static", "const"].contains(&group(2)?) && rest.starts_with(char::is_alphabetic);
            (!is_typed).then_some((group(1)?, group(2)?, group(3)?))
        })?;
        let has_modifier = |modifiers: &[&str]| {
            before
                .split_whitespace()
                .any(|word| modifiers.contains(&word))
        };
        let visibility = if has_modifier(&["pub", "export", "public"]) {
            2
        } else {
            u8::from(before.contains("pub("))
        };
        let control = [
            "if", "for", "while", "switch", "match", "return", "use", "else",
        ];
        let is_statement = self
            .text
            .split_whitespace()
            .next()
            .is_some_and(|word| control.contains(&word));
        // A module in a file of its own is only declared here; a local variable is never an answer.
        let is_declaration = kind == "mod" && self.text.trim_end().ends_with(';');
        let is_local = ["let", "var", "val"].contains(&kind)
            && (self.indent() > 0 || self.path.ends_with(".rs"));
        if is_declaration || is_local || is_statement || control.contains(&name) {
            return None;
        }
        Some(Definition {
            kind: kind.into(),
            name: name.into(),
            visibility,
        })
    }

    pub(super) fn indent(&self) -> usize {
        self.text.len() - self.text.trim_start().len()
    }

    /// Returns whether the line belongs to a definition below it: a comment, an attribute.
    pub(super) fn is_above(&self) -> bool {
        let text = self.text.trim_start();
        ["//", "#[", "/*", "*", "--", "@"]
            .iter()
            .any(|start| text.starts_with(start))
            && !text.starts_with("//!")
    }

    fn is_prose(&self) -> bool {
        [".md", ".rst", ".txt", ".adoc"]
            .iter()
            .any(|ending| self.path.ends_with(ending))
    }

    /// Returns the name of the file without its extension; for generic names such as `mod`, the
    /// name of the directory.
    pub(super) fn stem(&self) -> &str {
        let mut parts = self.path.rsplit(['/', '\\']);
        let stem = parts
            .next()
            .and_then(|name| name.split('.').next())
            .unwrap_or_default();
        if ["mod", "index", "lib", "main", "__init__"].contains(&stem) {
            parts.next().unwrap_or(stem)
        } else {
            stem
        }
    }

    /// Rates the line's file by its path, the likeliest first: sources, prose, tests, generated
    /// files.
    pub(super) fn remoteness(&self) -> u8 {
        const OTHERS: &str = "node_modules vendor dist target generated lock map svg csv log";
        const TESTS: &str = "test tests testdata fixtures mock bench benches examples html json";
        let parts = words(&self.path);
        let is = |list: &str| {
            parts
                .iter()
                .any(|part| list.split(' ').any(|word| word == part))
        };
        if is(OTHERS) {
            3
        } else if is(TESTS) {
            2
        } else {
            u8::from(self.is_prose())
        }
    }
}

/// Splits a path or a compound name into words in lower case.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut spaced = String::new();
    for c in text.chars() {
        let is_word_start = c.is_uppercase() && spaced.ends_with(char::is_lowercase);
        if is_word_start {
            spaced.push(' ');
        }
        spaced.push(if c.is_alphanumeric() { c } else { ' ' });
    }
    spaced.split_whitespace().map(str::to_lowercase).collect()
}
