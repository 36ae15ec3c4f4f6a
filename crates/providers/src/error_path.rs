//! Paths of fields in the error messages of providers, in all their notations.

/// The characters between the name of a list and an index in it: `tools.3`, `tools[3]`, `/tools/3`,
/// `["tools",3]`, `['tools', 3]`, `tools -> 3`.
const STEPS: [&str; 9] = [".", "[", "/", "\",", "\", ", "',", "', ", " -> ", "]["];

/// The lists of tools in requests.
pub const TOOLS: [&str; 2] = ["tools", "functions"];

/// The lists of declarations in a tool of Gemini, in lower case.
pub const DECLARATIONS: [&str; 2] = ["function_declarations", "functiondeclarations"];

/// The lists of a conversation's messages in requests.
pub(crate) const MESSAGES: [&str; 3] = ["messages", "input", "contents"];

/// Returns the first index in a list that a text in lower case names.
pub fn index_in(folded: &str, list: &str) -> Option<usize> {
    STEPS
        .into_iter()
        .find_map(|step| index_after(folded, &format!("{list}{step}")))
}

fn index_after(folded: &str, before: &str) -> Option<usize> {
    folded.match_indices(before).find_map(|(at, _)| {
        let rest = &folded[at + before.len()..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest[..digits].parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_is_found_in_every_notation() {
        for (text, expected) in [
            ("tools.3.custom", Some(3)),
            ("tools[3].function", Some(3)),
            ("#/tools/3/function", Some(3)),
            (r#"["tools",3,"function"]"#, Some(3)),
            (r#"["body", "tools", 3]"#, Some(3)),
            ("['tools',3]", Some(3)),
            ("['tools', 3]", Some(3)),
            ("body -> tools -> 3 -> function", Some(3)),
            ("[tools][3]", Some(3)),
            ("tools.custom, tools.12", Some(12)),
            ("too many tools: 130", None),
            ("tools.", None),
        ] {
            assert_eq!(index_in(text, "tools"), expected, "{text}");
        }
    }
}
