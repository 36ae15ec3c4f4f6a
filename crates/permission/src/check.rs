//! Judges requests without running them, for `adjutant permissions check`: each line of input is a
//! request as a JSON object, and is answered by one line.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::locate::{self, PathKind, PathRefusal};
use super::path_gate::{PathVerdict, judge_path};
use super::plan::CommandPlan;
use super::url_verdict::{UrlVerdict, judge_url};
use super::{Access, AccessRequest, PermissionContext, Policy, Rule, explain};

#[derive(Deserialize)]
struct CheckRequest {
    #[serde(default)]
    id: Value,
    bash: Option<String>,
    cwd: Option<String>,
    permission: Option<String>,
    path: Option<String>,
    url: Option<String>,
    pattern: Option<String>,
}

/// Judges one line of `adjutant permissions check`.
///
/// The line is `{"id", "bash", "cwd"?}`, `{"id", "permission": "edit", "path"}`, `{"id",
/// "permission": "webfetch", "url"}` or `{"id", "permission", "pattern"}`. With `path`, the
/// permission may be that of any file tool, and `pattern` is the text or name that it searches for.
/// The answer has `id`, `verdict`, `rule`, `units`, `reason` and the `sandbox` that was assumed; a
/// line that cannot be read is answered with `verdict: "refuse"`. `secrets` are the values that no
/// address may carry, as for the tool. `plan` plans a command as a call does; its error is the
/// reason why no command is run.
pub fn check_line(
    policy: &Arc<Policy>,
    secrets: &[String],
    plan: impl FnOnce(&str, &Arc<Policy>) -> Result<CommandPlan, String>,
    line: &str,
) -> String {
    let mut answer = verdict_on(policy, secrets, plan, line);
    if answer.get("sandbox").is_none() {
        answer["sandbox"] = policy.sandbox.guarantee.as_str().into();
    }
    answer.to_string()
}

fn verdict_on(
    policy: &Arc<Policy>,
    secrets: &[String],
    plan: impl FnOnce(&str, &Arc<Policy>) -> Result<CommandPlan, String>,
    line: &str,
) -> Value {
    let request: CheckRequest = match serde_json::from_str(line) {
        Ok(request) => request,
        Err(error) => {
            return answer(
                &Value::Null,
                "refuse",
                None,
                &[],
                Some(format!("the line is not understood: {error}")),
            );
        }
    };
    let id = &request.id;
    let policy_in_cwd;
    let policy = match &request.cwd {
        Some(cwd) => {
            let context = PermissionContext {
                cwd: policy.context.cwd.join(cwd),
                ..policy.context.clone()
            };
            policy_in_cwd = Arc::new(Policy {
                context,
                ..Policy::clone(policy)
            });
            &policy_in_cwd
        }
        None => policy,
    };
    if let Some(command) = &request.bash {
        let plan = match plan(command, policy) {
            Ok(plan) => plan,
            Err(reason) => return answer(id, "refuse", None, &[], Some(reason)),
        };
        let verdict = policy.judge(&plan.request);
        let units: Vec<Value> = verdict.units.iter().map(explain::unit_data).collect();
        let mut answer = answer(
            id,
            explain::word(verdict.action),
            verdict.rule.as_ref(),
            &units,
            verdict.reason,
        );
        answer["sandbox"] = plan.request.guarantee.as_str().into();
        return answer;
    }
    let permission = request.permission.as_deref().unwrap_or_default();
    if let Some(path) = &request.path {
        return match path_verdict(policy, permission, path, request.pattern.as_deref()) {
            PathVerdict::Judged(verdict) => answer(
                id,
                explain::word(verdict.action),
                verdict.rule.as_ref(),
                &[],
                verdict.reason,
            ),
            PathVerdict::Refused(refusal) => {
                answer(id, "refuse", None, &[], Some(refusal.to_string()))
            }
        };
    }
    if let Some(address) = &request.url {
        return match judge_url(&policy.rules, address, secrets, &policy.private_hosts) {
            UrlVerdict::Judged(action, reason) => {
                answer(id, explain::word(action), None, &[], Some(reason))
            }
            UrlVerdict::Refused(reason) => answer(id, "refuse", None, &[], Some(reason)),
        };
    }
    if permission.is_empty() {
        let reason = "there is nothing to judge: give \"bash\", or \"permission\" with \"path\", \"url\" or \"pattern\"";
        return answer(id, "refuse", None, &[], Some(reason.into()));
    }
    let access = AccessRequest::new(permission, request.pattern.as_deref().unwrap_or("*"));
    let verdict = policy.judge(&access);
    answer(
        id,
        explain::word(verdict.action),
        verdict.rule.as_ref(),
        &[],
        verdict.reason,
    )
}

/// Judges a call of a file tool.
///
/// Searches need a permission of their own and list the entries below a directory; searching a
/// single file reads it. A directory is listed by reading it.
fn path_verdict(
    policy: &Policy,
    permission: &str,
    path: &str,
    pattern: Option<&str>,
) -> PathVerdict {
    match super::rule::modern(permission).unwrap_or(permission) {
        "edit" => judge_path(policy, Access::Edit, path, vec![]),
        "list"
            if locate::locate(path, &policy.context)
                .is_ok_and(|at| at.is_inside && at.kind != PathKind::Directory) =>
        {
            PathVerdict::Refused(PathRefusal::NotDirectory(path.into()))
        }
        tool @ ("glob" | "grep") => {
            let found = locate::locate(path, &policy.context);
            let is_directory = found
                .as_ref()
                .is_ok_and(|found| found.kind == PathKind::Directory);
            // The kind of a path outside is not revealed before it may be looked at.
            if let Ok(at) = found.as_ref()
                && at.is_inside
                && at.kind == PathKind::File
                && tool != "grep"
            {
                return PathVerdict::Refused(PathRefusal::NotDirectory(path.into()));
            }
            let own = AccessRequest::new(tool, pattern.unwrap_or("*"));
            let access = if tool == "grep" && !is_directory {
                Access::Read
            } else {
                Access::List
            };
            judge_path(policy, access, path, vec![own])
        }
        _ => judge_path(policy, Access::Read, path, vec![]),
    }
}

fn answer(
    id: &Value,
    verdict: &str,
    by: Option<&Rule>,
    units: &[Value],
    reason: Option<String>,
) -> Value {
    json!({ "id": id, "verdict": verdict, "rule": by.map(explain::rule_data), "units": units, "reason": reason })
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::super::case_tables::{PathFixture, rules_that_ask, rules_that_deny_rm};
    use super::super::plan::{CommandLine, SandboxCapabilities, plan_command};
    use super::*;
    use crate::SandboxGuarantee;

    fn check(policy: &Policy, line: &str) -> Value {
        let secrets = ["sk-mykeyvalue1234567890abcdef".into()];
        let policy = Arc::new(policy.clone());
        serde_json::from_str(&check_line(&policy, &secrets, planned, line)).unwrap()
    }

    fn planned(command: &str, policy: &Arc<Policy>) -> Result<CommandPlan, String> {
        if command == "refused" {
            return Err("no command is run".to_owned());
        }
        let line = CommandLine::analyze(command, &policy.context);
        let sandbox = SandboxCapabilities {
            guarantee: SandboxGuarantee::WORKSPACE,
            ..SandboxCapabilities::default()
        };
        Ok(plan_command(line, policy, sandbox))
    }

    #[test]
    fn request_lines_are_answered() {
        let lab = PathFixture::new();
        let policy = Policy {
            rules: rules_that_deny_rm(&lab.context),
            private_hosts: ["*.corp.internal".into()].into(),
            context: lab.context.clone(),
            ..Policy::default()
        };
        let denied = check(&policy, r#"{"id": 7, "bash": "sudo rm x"}"#);
        assert_eq!(
            (&denied["id"], &denied["verdict"]),
            (&json!(7), &json!("deny"))
        );
        assert_eq!(denied["rule"]["pattern"], "rm*");
        assert_eq!(denied["units"][1]["program"], "rm");
        let table = [
            (
                r#"{"id": 1, "permission": "edit", "path": "../out/x"}"#,
                "ask",
            ),
            (
                r#"{"id": 1, "permission": "edit", "path": "a.txt"}"#,
                "allow",
            ),
            (r#"{"id": 1, "permission": "read", "path": ".env"}"#, "ask"),
            (
                r#"{"id": 1, "permission": "webfetch", "url": "http://127.0.0.1/"}"#,
                "deny",
            ),
            (
                r#"{"id": 1, "permission": "webfetch", "url": "http://wiki.corp.internal/"}"#,
                "allow",
            ),
            (
                r#"{"id": 1, "permission": "webfetch", "url": "http://a.example/?q=x"}"#,
                "allow",
            ),
            (
                r#"{"id": 1, "permission": "webfetch", "url": "http://a.example/?q=sk-mykeyvalue1234567890abcdef"}"#,
                "ask",
            ),
            (
                r#"{"id": 1, "permission": "webfetch", "url": "http://sk-mykeyvalue1234567890abcdef.a.example/"}"#,
                "deny",
            ),
            (
                r#"{"id": 1, "permission": "doom_loop", "pattern": "bash"}"#,
                "ask",
            ),
            (r#"{"id": 1, "bash": "ls > f", "cwd": "../out"}"#, "ask"),
            (r#"{"id": 1, "bash": "refused"}"#, "refuse"),
            (r#"{"id": 1}"#, "refuse"),
            ("nonsense", "refuse"),
        ];
        for (line, verdict) in table {
            assert_eq!(check(&policy, line)["verdict"], verdict, "{line}");
        }
        for (line, sandbox) in [
            (r#"{"id": 1, "bash": "touch x"}"#, "workspace"),
            (
                r#"{"id": 1, "permission": "read", "path": "a.txt"}"#,
                "none",
            ),
        ] {
            assert_eq!(check(&policy, line)["sandbox"], sandbox, "{line}");
        }
        let policy = Policy {
            rules: rules_that_ask(&lab.context),
            context: lab.context.clone(),
            ..Policy::default()
        };
        assert_eq!(
            check(&policy, r#"{"id": 1, "bash": "git diff | wc"}"#)["verdict"],
            "ask"
        );
        // A later rule for every tool is broader, so it does not lift the deny.
        let policy = Policy {
            rules: crate::Rules::built_in(&[
                ("list", "*", crate::Action::Deny),
                ("*", "*", crate::Action::Allow),
            ]),
            context: lab.context.clone(),
            ..Policy::default()
        };
        assert_eq!(
            check(&policy, r#"{"id": 1, "permission": "list", "path": "."}"#)["verdict"],
            "deny"
        );
    }
}
