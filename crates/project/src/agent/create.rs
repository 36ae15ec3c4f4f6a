//! A new agent from a description: the model request, the check of the answer, and the agent's
//! file. The request and the file access are made elsewhere.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;

use super::Mode;
use permission::keys::PERMISSIONS;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Proposal {
    /// The name of the agent.
    pub identifier: String,
    /// The description of its purpose.
    pub when_to_use: String,
    pub system_prompt: String,
}

/// Returns the system prompt and the message for a model. Sampling temperature 0.3, no tools.
pub fn question(description: &str, taken: &[&str]) -> (&'static str, String) {
    let taken = if taken.is_empty() {
        "none".to_owned()
    } else {
        taken.join(", ")
    };
    let message = format!(
        "Make an agent from this description:\n\n{}\n\nIdentifiers that are taken: {taken}\n\nAnswer with the JSON object alone.",
        description.trim()
    );
    (prompts::agent::CREATE, message)
}

/// Parses a model's answer; a code fence around the JSON is accepted.
///
/// # Errors
/// The error, for display.
pub fn proposal(answer: &str, taken: &[&str]) -> Result<Proposal, String> {
    let start = answer
        .find('{')
        .ok_or("the model's answer has no JSON object in it")?;
    let end = answer
        .rfind('}')
        .filter(|end| *end > start)
        .ok_or("the model's answer is cut off")?;
    let json = answer.get(start..=end).unwrap_or_default();
    let mut proposal: Proposal =
        serde_json::from_str(json).map_err(|e| format!("the model's answer does not fit: {e}"))?;
    proposal.identifier = proposal.identifier.trim().to_lowercase();
    for text in [&mut proposal.when_to_use, &mut proposal.system_prompt] {
        *text = text.trim().to_owned();
    }
    let id = &proposal.identifier;
    if !is_identifier(id) {
        return Err(format!(
            "\"{id}\" cannot be an agent's name: lower-case words joined by hyphens are needed"
        ));
    }
    if taken.contains(&id.as_str()) {
        return Err(format!("there is an agent \"{id}\" already"));
    }
    if proposal.when_to_use.is_empty() || proposal.system_prompt.is_empty() {
        return Err("the model left out when the agent is to be used, or its instructions".into());
    }
    Ok(proposal)
}

/// Returns whether a word can be an agent's file name: lower-case letters, digits and hyphens, 2 to 50.
pub fn is_identifier(id: &str) -> bool {
    (2..=50).contains(&id.len())
        && id
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && id.starts_with(|c: char| c.is_ascii_lowercase())
        && !id.ends_with('-')
}

/// Returns the permissions that can be denied to a new agent: all known ones, but not everything at
/// once.
pub fn deniable_permissions() -> impl Iterator<Item = &'static str> {
    let keys = PERMISSIONS.iter().map(|(key, _)| *key);
    keys.filter(|key| *key != "*")
}

/// Returns the file of a new agent. `denied` permissions are written as denies.
pub fn markdown(proposal: &Proposal, mode: Mode, denied: &[&str]) -> String {
    let mut text = String::from("---\n");
    // JSON strings are YAML strings, whatever they contain.
    let _ = writeln!(
        text,
        "description: {}",
        Value::from(proposal.when_to_use.as_str())
    );
    let _ = writeln!(text, "mode: {}", mode.as_str());
    if !denied.is_empty() {
        text.push_str("permission:\n");
        for key in denied {
            let _ = writeln!(text, "  {key}: deny");
        }
    }
    let _ = write!(text, "---\n\n{}\n", proposal.system_prompt);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_checked() {
        let good = r#"```json
{"identifier": "Api-Reviewer ", "whenToUse": "Use this agent when: \"x\"", "systemPrompt": "You review.\n"}
```"#;
        let proposal = proposal(good, &["build"]).unwrap();
        assert_eq!(proposal.identifier, "api-reviewer");
        assert_eq!(proposal.system_prompt, "You review.");
        let bad = [
            ("no", "no JSON"),
            (
                r#"{"identifier": "a b", "whenToUse": "x", "systemPrompt": "y"}"#,
                "cannot be",
            ),
            (
                r#"{"identifier": "../evil", "whenToUse": "x", "systemPrompt": "y"}"#,
                "cannot be",
            ),
            (
                r#"{"identifier": "build", "whenToUse": "x", "systemPrompt": "y"}"#,
                "already",
            ),
            (
                r#"{"identifier": "ok-id", "whenToUse": " ", "systemPrompt": "y"}"#,
                "left out",
            ),
            (r#"{"identifier": "ok-id"}"#, "does not fit"),
        ];
        for (answer, expected) in bad {
            let error = self::proposal(answer, &["build"]).unwrap_err();
            assert!(error.contains(expected), "{answer}: {error}");
        }
    }

    #[test]
    fn written_file_can_be_read() {
        let proposal = Proposal {
            identifier: "x-y".into(),
            when_to_use: "Use this agent when: a \"b\"\nand c # d".into(),
            system_prompt: "Do.\n---\nNot the end.".into(),
        };
        let text = markdown(&proposal, Mode::Subagent, &["bash", "edit"]);
        let split = config::markdown::split(&text).unwrap();
        assert_eq!(split.body.trim(), proposal.system_prompt);
        assert!(split.matter.unwrap().contains("bash: deny"));
    }
}
