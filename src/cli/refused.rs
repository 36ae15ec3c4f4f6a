//! Calls that were refused because no user could be asked. They are printed as they happen, and
//! again at the end of a run with the settings that would have allowed them.

use protocol::acp::v1;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use acp_server::meta::{UNATTENDED, member};
use base::text;
use tools::denial_message::NOT_ALLOWED;
use tools::failure_text::for_user;

/// The beginning of a message, after [`NOT_ALLOWED`], about a change in plan mode.
const IN_PLAN_MODE: &str = " in plan mode (";

/// A call that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RefusedCall {
    title: String,
    /// The reason for the question, in a few words.
    reason: String,
    /// The value of `permission` in the settings that would allow it; `None` if no rule can.
    permission: Option<Value>,
}

impl RefusedCall {
    /// Creates the refused call of a permission request.
    pub(super) fn new(request: &v1::RequestPermissionRequest) -> Self {
        let fact =
            |key: &str| member(request.meta.as_ref(), UNATTENDED).and_then(|facts| facts.get(key));
        Self {
            title: text::title(
                request
                    .tool_call
                    .fields
                    .title
                    .as_deref()
                    .unwrap_or_default(),
            ),
            reason: text::title(fact("reason").and_then(Value::as_str).unwrap_or_default()),
            permission: fact("permission")
                .filter(|permission| permission.is_object())
                .cloned(),
        }
    }

    /// Returns the message for a refusal as it happens, with its cause.
    pub(super) fn message(&self, because: &str) -> String {
        format!(
            "not allowed, {because}: {}; --allow permits it",
            self.named()
        )
    }

    fn named(&self) -> String {
        if self.reason.is_empty() {
            self.title.clone()
        } else {
            format!("{} ({})", self.title, self.reason)
        }
    }
}

/// Describes a call that a rule denied, from its result. `None` for any other result.
pub(super) fn denial(title: &str, output: Option<&str>) -> Option<String> {
    let why = output?.strip_prefix(NOT_ALLOWED)?;
    if why.starts_with(IN_PLAN_MODE) {
        return Some(format!(
            "not allowed: {}: plan mode changes nothing before you approve a plan",
            text::title(title)
        ));
    }
    let why = for_user(why);
    let why = why.strip_prefix(": ").unwrap_or(&why);
    Some(format!(
        "not allowed: {}: {}",
        text::title(title),
        text::title(why)
    ))
}

/// Lists the refused calls, each once. `None` if there are none.
pub(super) fn listed(refused: &[RefusedCall]) -> Option<String> {
    let mut different: Vec<&RefusedCall> = Vec::new();
    for call in refused {
        if !different.contains(&call) {
            different.push(call);
        }
    }
    if different.is_empty() {
        return None;
    }
    let were = if different.len() == 1 { "was" } else { "were" };
    let mut lines = vec![format!(
        "adjutant: {} {were} not allowed:",
        text::count(different.len(), "call")
    )];
    for call in different {
        lines.push(format!("  {}", call.named()));
        lines.push(match &call.permission {
            Some(permission) => {
                format!(
                    "    permitted by --allow, or in the settings by {}",
                    json!({ "permission": permission })
                )
            }
            None => "    permitted by --allow; no rule in the settings permits it".to_owned(),
        });
    }
    Some(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denial_by_a_rule_differs_from_other_failures() {
        let rule = "Not allowed: the rule \"bash\": { \"rm *\": \"deny\" } (~/adjutant.json:3) denies bash rm x. Do not try to work around this.";
        assert_eq!(
            denial("rm x", Some(rule)).as_deref(),
            Some(
                "not allowed: rm x: the rule \"bash\": { \"rm *\": \"deny\" } (~/adjutant.json:3) denies bash rm x."
            )
        );
        let mode = "Not allowed in plan mode (edit a.rs): nothing may be changed.";
        assert_eq!(
            denial("Edit a.rs", Some(mode)).as_deref(),
            Some("not allowed: Edit a.rs: plan mode changes nothing before you approve a plan")
        );
        for other in [None, Some("exit code 1"), Some("")] {
            assert_eq!(denial("ls", other), None);
        }
    }

    #[test]
    fn refused_calls_are_listed_once_with_the_rule_that_permits_them() {
        let call = |title: &str, permission: Option<Value>| RefusedCall {
            title: title.into(),
            reason: "outside the project".into(),
            permission,
        };
        assert_eq!(listed(&[]), None);
        let read = call(
            "Read /etc/hosts",
            Some(json!({ "external_directory": { "/etc/*": "allow" } })),
        );
        assert_eq!(
            read.message("no user to ask"),
            "not allowed, no user to ask: Read /etc/hosts (outside the project); --allow permits it"
        );
        let all = [read.clone(), call("Write .git/config", None), read];
        assert_eq!(
            listed(&all).unwrap(),
            "adjutant: 2 calls were not allowed:\n  \
             Read /etc/hosts (outside the project)\n    \
             permitted by --allow, or in the settings by {\"permission\":{\"external_directory\":{\"/etc/*\":\"allow\"}}}\n  \
             Write .git/config (outside the project)\n    \
             permitted by --allow; no rule in the settings permits it"
        );
    }
}
