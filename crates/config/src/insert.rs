//! Command lines in the templates of commands.

/// Returns the command lines in `` !`…` `` of a template.
pub(super) fn shell_inserts(template: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = template;
    while let Some(start) = rest.find("!`") {
        let inner = &rest[start + 2..];
        let Some(end) = inner.find('`') else { break };
        if end > 0 {
            found.push(&inner[..end]);
        }
        rest = &inner[end + 1..];
    }
    found
}
