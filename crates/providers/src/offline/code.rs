//! What code looks like: lines, and which of them define a name, told by plain patterns for all usual languages.

use std::sync::LazyLock;

use grep_matcher::{Captures as _, Matcher as _};
use grep_regex::RegexMatcher;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CodeLine {
    pub(super) path: String,
    /// Counted from 1.
    pub(super) number: usize,
    pub(super) text: String,
}

/// What a line gives its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Definition {
    /// `fn`, `struct`, `class` … as the language says it; `#` for a heading, nothing where no word says it.
    pub(super) kind: String,
    pub(super) name: String,
    /// How far it can be seen: 2 everywhere, 1 within its package, 0 where nothing is said.
    pub(super) visible: u8,
}

/// Words that say what is defined.
const KINDS: &str = "fn|struct|enum|union|trait|type|mod|const|static|macro_rules!|class|interface|def|func|function|\
    fun|module|object|record|namespace|protocol|let|var|val|#define";

/// What stands before the name of a function that no word introduces, as in C and Java.
const TYPED: &str = r"^((?:\s*(?:public|private|protected|internal|static)\s)?)[A-Za-z_][\w:<>,*&\[\] ]*[\s*&]()";

/// A pattern for `grep` that finds definitions by a pattern for their names. It may find more.
pub(super) fn defining(name: &str) -> String {
    format!(r"(?:\b|#)(?:{KINDS})\s+(?:\([^)]*\)\s*|self\.|\*)?{name}|{TYPED}{name}\s*\([^;=]*$")
}

/// Each with three groups: what stands before, what says what is defined, the name.
static PATTERNS: LazyLock<Vec<RegexMatcher>> = LazyLock::new(|| {
    const BEFORE: &str = "pub|pub\\([^)]*\\)|export|default|async|unsafe|extern|static|public|private|protected|internal|\
        final|abstract|inline|declare|virtual|override|sealed|partial|data|suspend|constexpr|readonly|local|typedef|\
        const|\"[^\"]*\"";
    let own_line = r"^\s*(?:#\[[^\]]*\]\s*|\w+! *[{(]\s*)?";
    let keyword = format!(r"{own_line}((?:(?:{BEFORE})\s+)*)({KINDS})\s+(?:\([^)]*\)\s*|self\.|\*)?([A-Za-z_$][\w$]*)");
    let typed = format!(r"{TYPED}([A-Za-z_]\w*)\s*\([^;=]*$");
    let all = [&keyword, r"^\s*(unsafe )?(impl)(?:<.*?>)?\s+([^{]+?)\s*(?:\{.*)?$", &typed, r"^(#)(#*) (.+)$"];
    all.iter().filter_map(|pattern| RegexMatcher::new(pattern).ok()).collect()
});

impl CodeLine {
    /// What it defines. Of texts for people only headings count.
    pub(super) fn definition(&self) -> Option<Definition> {
        let patterns = if self.is_prose() { PATTERNS.get(3..)? } else { PATTERNS.get(..3)? };
        let (before, kind, name) = patterns.iter().find_map(|pattern| {
            let mut groups = pattern.new_captures().ok()?;
            pattern.captures(self.text.as_bytes(), &mut groups).ok()?.then_some(())?;
            let group = |at| groups.get(at).map_or(Some(""), |found| self.text.get(found.start()..found.end()));
            let rest = self.text.get(groups.get(3)?.end()..)?.trim_start();
            // "static void main(" is no constant.
            let typed = ["static", "const"].contains(&group(2)?) && rest.starts_with(char::is_alphabetic);
            (!typed).then_some((group(1)?, group(2)?, group(3)?))
        })?;
        let says = |words: &[&str]| before.split_whitespace().any(|word| words.contains(&word));
        let visible = if says(&["pub", "export", "public"]) { 2 } else { u8::from(before.contains("pub(")) };
        let control = ["if", "for", "while", "switch", "match", "return", "use", "else"];
        let starts = self.text.split_whitespace().next().is_some_and(|word| control.contains(&word));
        // A module in a file of its own is only named here; a local variable is nobody's answer.
        let elsewhere = kind == "mod" && self.text.trim_end().ends_with(';');
        let local = ["let", "var", "val"].contains(&kind) && (self.indent() > 0 || self.path.ends_with(".rs"));
        let fits = !elsewhere && !local && !starts && !control.contains(&name);
        fits.then(|| Definition { kind: kind.into(), name: name.into(), visible })
    }

    pub(super) fn indent(&self) -> usize {
        self.text.len() - self.text.trim_start().len()
    }

    /// Whether it belongs to a definition below it: a comment, an attribute.
    pub(super) fn is_above(&self) -> bool {
        let text = self.text.trim_start();
        ["//", "#[", "/*", "*", "--", "@"].iter().any(|start| text.starts_with(start)) && !text.starts_with("//!")
    }

    /// Whether it only mentions things.
    pub(super) fn is_minor(&self) -> bool {
        self.is_above() || ["use ", "import ", "from ", "pub use "].iter().any(|start| self.text.starts_with(start))
    }

    fn is_prose(&self) -> bool {
        [".md", ".rst", ".txt", ".adoc"].iter().any(|ending| self.path.ends_with(ending))
    }

    /// What its file is called after: the name without its ending; of files that are called like all others, the
    /// folder.
    pub(super) fn stem(&self) -> &str {
        let mut parts = self.path.rsplit(['/', '\\']);
        let stem = parts.next().and_then(|name| name.split('.').next()).unwrap_or_default();
        if ["mod", "index", "lib", "main", "__init__"].contains(&stem) { parts.next().unwrap_or(stem) } else { stem }
    }

    /// How much its file counts for its place in the project: sources before tests before what nobody wrote by hand.
    pub(super) fn worth(&self) -> f64 {
        const OTHERS: &str = "node_modules vendor dist target venv generated lock map svg snap csv log sum";
        const TESTS: &str =
            "test tests spec testdata fixtures mock mocks mocked bench benches example examples html json";
        let path = self.path.to_lowercase();
        let is = |list: &str| path.split(['/', '.', '_', '-']).any(|part| list.split(' ').any(|word| word == part));
        match (is(OTHERS), is(TESTS), self.is_prose()) {
            (true, ..) => 0.05,
            (_, true, _) => 0.3,
            (.., true) => 0.4,
            _ => 1.0,
        }
    }
}

/// The words of a path, or of a name that is made of several: lower case.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut spaced = String::new();
    for c in text.chars() {
        let begins = c.is_uppercase() && spaced.ends_with(char::is_lowercase);
        spaced.extend(begins.then_some(' '));
        spaced.push(if c.is_alphanumeric() { c } else { ' ' });
    }
    spaced.split_whitespace().map(str::to_lowercase).collect()
}
