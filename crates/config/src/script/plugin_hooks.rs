//! The hooks that a plugin may have, as far as its text shows.

use super::{GUARDS, HOOKS, ScriptEntry, ScriptKind};

/// Returns the text of a plugin that is one file of a usual size. Blocks on file access.
pub(crate) fn plugin_text(script: &ScriptEntry) -> Option<String> {
    const MAX_BYTES: u64 = 1 << 20;
    base::file::read_small_text(&script.path, MAX_BYTES).ok()
}

/// Returns the hooks that a plugin's text mentions.
pub(crate) fn mentioned_hooks(text: &str) -> Vec<&'static str> {
    HOOKS
        .iter()
        .filter(|hook| mentions(text, hook))
        .copied()
        .collect()
}

/// Returns the hooks with which a plugin can refuse a call and that its files may handle. Blocks
/// on file access.
pub(super) fn guards(script: &ScriptEntry) -> Vec<&'static str> {
    if script.kind != ScriptKind::Plugin {
        return Vec::new();
    }
    match plugin_text(script) {
        Some(text) => guards_in(&text),
        None => GUARDS.to_vec(),
    }
}

/// Returns the hooks with which a plugin of this text may refuse a call. A text that takes code
/// from other files or packages, or that imports something and mentions no hook, may have them
/// there.
fn guards_in(text: &str) -> Vec<&'static str> {
    let hooks = mentioned_hooks(text);
    let imports = ["import", "require", " from "]
        .iter()
        .any(|word| text.contains(word));
    if imports && (hooks.is_empty() || takes_code(text)) {
        return GUARDS.to_vec();
    }
    GUARDS
        .into_iter()
        .filter(|guard| hooks.contains(guard))
        .collect()
}

/// Returns whether a text may take code from other files or packages. Modules of the runtime and
/// the package that declares plugins have no hooks, and types are not code. A word in a comment
/// counts as well, which is the safe side.
fn takes_code(text: &str) -> bool {
    if text.contains("createRequire") {
        return true;
    }
    ["import", "from", "require"].iter().any(|word| {
        let mut places = text.match_indices(word);
        places.any(|(at, _)| {
            let before = &text[..at];
            let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
            let is_type_import = *word == "from" && imports_types(before);
            !before.ends_with(is_word)
                && !is_type_import
                && is_foreign_source(&text[at + word.len()..])
        })
    })
}

/// Returns whether the text before `from` is that of an import or export of types.
fn imports_types(before: &str) -> bool {
    let start = before.rfind("import").max(before.rfind("export"));
    let clause = start.map_or("", |start| &before[start + "import".len()..]);
    let types = clause.trim_start().strip_prefix("type");
    types.is_some_and(|types| types.starts_with([' ', '{']) && !types.trim().is_empty())
}

/// Returns whether the text after `import`, `from` or `require` names a module that may have hooks,
/// or computes the name.
fn is_foreign_source(after: &str) -> bool {
    let called = after.trim_start().strip_prefix('(');
    let named = called.unwrap_or(after).trim_start();
    let Some(quote @ ('"' | '\'')) = named.chars().next() else {
        // A comment may precede the name.
        return called.is_some() || named.starts_with("/*") || named.starts_with("//");
    };
    let module = named[1..].split(quote).next().unwrap_or_default();
    !is_harmless_module(module)
}

/// Returns whether a module is of the runtime, or the package that declares plugins.
fn is_harmless_module(module: &str) -> bool {
    const PACKAGES: [&str; 2] = ["@opencode-ai/plugin", "@opencode-ai/sdk"];
    const BUILT_IN: [&str; 20] = [
        "assert",
        "async_hooks",
        "bun",
        "buffer",
        "child_process",
        "crypto",
        "dns",
        "events",
        "fs",
        "http",
        "https",
        "net",
        "os",
        "path",
        "process",
        "readline",
        "stream",
        "url",
        "util",
        "zlib",
    ];
    let whole = module.split('/').next().unwrap_or_default();
    module.starts_with("node:")
        || module.starts_with("bun:")
        || BUILT_IN.contains(&whole)
        || PACKAGES.iter().any(|package| {
            let rest = module.strip_prefix(package);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
}

/// Returns whether a plugin's text contains a hook's name. A name without a dot is a common word,
/// so it counts only as the name of a property or method.
fn mentions(text: &str, hook: &str) -> bool {
    if hook.contains('.') {
        return text.contains(hook) || mentions_nested(text, hook);
    }
    ["", "async ", "\"", "'"].iter().any(|before| {
        [":", "(", "\":", "':"]
            .iter()
            .any(|after| text.contains(&format!(" {before}{hook}{after}")))
    })
}

/// Returns whether a plugin's text may contain a hook in nested objects: `permission: { ask }` is
/// `permission.ask`.
fn mentions_nested(text: &str, hook: &str) -> bool {
    let holds_object = |after: &str| {
        after
            .strip_prefix(':')
            .is_some_and(|value| value.trim_start().starts_with('{'))
    };
    let mut words = hook.split('.');
    let last = words.next_back().unwrap_or(hook);
    words.all(|word| has_key(text, word, holds_object))
        && has_key(text, last, |after: &str| {
            after.starts_with([':', '(', ',', '}'])
        })
}

/// Returns whether a text contains a word, possibly in quotes, before a text with this property.
fn has_key(text: &str, word: &str, ends: impl Fn(&str) -> bool) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    text.match_indices(word).any(|(at, _)| {
        let after = text[at + word.len()..].trim_start_matches(['"', '\'', '`', ']']);
        !text[..at].ends_with(is_word) && ends(after.trim_start())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_guards_with_the_hooks_that_its_text_mentions() {
        let both = &GUARDS[..];
        let table: [(&str, &[&str]); 21] = [
            ("({ \"tool.execute.before\": f })", &["tool.execute.before"]),
            ("({ permission: { ask } })", &["permission.ask"]),
            ("import x from \"fs\"\n({ \"chat.params\": f })", &[]),
            (
                "import { readFile } from 'node:fs/promises'\n({ \"chat.params\": f })",
                &[],
            ),
            (
                "import { tool } from \"@opencode-ai/plugin/tool\"\n({ \"chat.params\": f })",
                &[],
            ),
            (
                "import type { X } from \"y\"\n({ \"chat.params\": f })",
                &[],
            ),
            (
                "import fs from \"fs\"\n({ \"tool.execute.before\": f })",
                &["tool.execute.before"],
            ),
            ("import.meta.url; ({ \"chat.params\": f })", &[]),
            ("import x from \"y\"\n({ \"chat.params\": f, ...x })", both),
            ("import \"y\"\n({ \"chat.params\": f })", both),
            ("import type from \"y\"\n({ \"chat.params\": f })", both),
            (
                "import {type X, g} from 'y'\n({ \"chat.params\": f })",
                both,
            ),
            (
                "export * from \"@me/guard\"\n({ \"chat.params\": f })",
                both,
            ),
            ("({ \"chat.params\": f, ...require('guard') })", both),
            ("await import(name); ({ \"chat.params\": f })", both),
            ("await import(`guard`); ({ \"chat.params\": f })", both),
            (
                "import g from /* a */ \"./guard.js\"\n({ \"chat.params\": f })",
                both,
            ),
            ("export { Guard } from \"./guard.js\"", both),
            ("module.exports = require(\"./guard\")", both),
            (
                "import { g } from './guard.js'\n({ \"chat.params\": f, ...g })",
                both,
            ),
            ("export const nothing = 1", &[]),
        ];
        for (text, wanted) in table {
            assert_eq!(guards_in(text), wanted, "{text}");
        }
    }

    #[test]
    fn hooks_are_mentioned_by_name_or_in_nested_objects() {
        let table = [
            ("\"permission.ask\": f", "permission.ask", true),
            ("({ permission: { ask } })", "permission.ask", true),
            ("permission:{async ask(a) {}}", "permission.ask", true),
            (
                "tool: { execute: { before: f } }",
                "tool.execute.before",
                true,
            ),
            (
                "tool: { x: { execute(a) {} } }",
                "tool.execute.before",
                false,
            ),
            (
                "context.ask({ permission: \"x\" })",
                "permission.ask",
                false,
            ),
        ];
        for (text, hook, wanted) in table {
            assert_eq!(mentions(text, hook), wanted, "{text}");
        }
    }
}
