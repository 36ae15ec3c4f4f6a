//! Judging without running: one JSON object per line in, one out, for `adjutant permissions check`.

use serde::Deserialize;
use serde_json::{Value, json};

use super::paths::{self, Access, PathVerdict};
use super::url::{self, UrlVerdict};
use super::{Place, Rule, Rules, command_need, evaluate, explain};

/// What lines are judged by.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// The rules of the agent.
    pub rules: Rules,
    /// What was granted before.
    pub grants: Rules,
    /// Hosts of this machine and network that may be fetched from.
    pub private: Vec<String>,
    /// Where it is judged; a line may name another cwd.
    pub place: Place,
}

#[derive(Deserialize)]
struct Question {
    #[serde(default)]
    id: Value,
    bash: Option<String>,
    cwd: Option<String>,
    permission: Option<String>,
    path: Option<String>,
    url: Option<String>,
    pattern: Option<String>,
}

/// Judges one line: `{"id", "bash", "cwd"?}`, `{"id", "permission": "edit", "path"}`,
/// `{"id", "permission": "webfetch", "url"}` or `{"id", "permission", "pattern"}`. The answer has
/// `id`, `verdict`, `rule`, `units` and `reason`; a line that cannot be read is answered with
/// `verdict: "refuse"`.
pub fn check_line(policy: &Policy, line: &str) -> String {
    let question: Question = match serde_json::from_str(line) {
        Ok(question) => question,
        Err(error) => {
            return answer(&Value::Null, "refuse", None, &[], Some(format!("the line is not understood: {error}")));
        }
    };
    let id = &question.id;
    let mut elsewhere = None;
    if let Some(cwd) = &question.cwd {
        elsewhere = Some(Place { cwd: policy.place.cwd.join(cwd), ..policy.place.clone() });
    }
    let place = elsewhere.as_ref().unwrap_or(&policy.place);
    if let Some(command) = &question.bash {
        let verdict = evaluate(&policy.rules, &policy.grants, &command_need(command, place));
        let units: Vec<Value> = verdict
            .units
            .iter()
            .map(|unit| {
                json!({
                    "text": unit.text,
                    "program": unit.program,
                    "layer": unit.layer,
                    "verdict": explain::word(unit.action),
                    "rule": unit.rule.as_ref().map(rule),
                    "reason": unit.reason,
                    "readOnly": unit.read_only,
                })
            })
            .collect();
        return answer(id, explain::word(verdict.action), verdict.rule.as_ref(), &units, verdict.reason);
    }
    let permission = question.permission.as_deref().unwrap_or_default();
    if let Some(path) = &question.path {
        let access = if matches!(permission, "edit" | "write") { Access::Edit } else { Access::Read };
        return match paths::judge_path(&policy.rules, access, path, place) {
            PathVerdict::Judged(action, reason) => answer(id, explain::word(action), None, &[], reason),
            PathVerdict::Refused(refusal) => answer(id, "refuse", None, &[], Some(refusal.to_string())),
        };
    }
    if let Some(address) = &question.url {
        return match url::judge_url(&policy.rules, address, &[], &policy.private) {
            UrlVerdict::Judged(action, reason) => answer(id, explain::word(action), None, &[], Some(reason)),
            UrlVerdict::Refused(reason) => answer(id, "refuse", None, &[], Some(reason)),
        };
    }
    if permission.is_empty() {
        let reason =
            "there is nothing to judge: give \"bash\", or \"permission\" with \"path\", \"url\" or \"pattern\"";
        return answer(id, "refuse", None, &[], Some(reason.into()));
    }
    let need = super::Need::new(permission, question.pattern.as_deref().unwrap_or("*"));
    let verdict = evaluate(&policy.rules, &policy.grants, &need);
    answer(id, explain::word(verdict.action), verdict.rule.as_ref(), &[], verdict.reason)
}

fn rule(rule: &Rule) -> Value {
    json!({ "permission": rule.permission, "pattern": rule.pattern, "action": explain::word(rule.action), "source": rule.source })
}

fn answer(id: &Value, verdict: &str, by: Option<&Rule>, units: &[Value], reason: Option<String>) -> String {
    json!({ "id": id, "verdict": verdict, "rule": by.map(rule), "units": units, "reason": reason }).to_string()
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::super::cases::{Lab, r1, r2};
    use super::*;

    fn ask(policy: &Policy, line: &str) -> Value {
        serde_json::from_str(&check_line(policy, line)).unwrap()
    }

    #[test]
    fn lines_are_answered() {
        let lab = Lab::new();
        let policy = Policy {
            rules: r2(&lab.place),
            private: vec!["*.corp.internal".into()],
            place: lab.place.clone(),
            ..Policy::default()
        };
        let denied = ask(&policy, r#"{"id": 7, "bash": "sudo rm x"}"#);
        assert_eq!((&denied["id"], &denied["verdict"]), (&json!(7), &json!("deny")));
        assert_eq!(denied["rule"]["pattern"], "rm*");
        assert_eq!(denied["units"][1]["program"], "rm");
        let table = [
            (r#"{"id": 1, "permission": "edit", "path": "../out/x"}"#, "ask"),
            (r#"{"id": 1, "permission": "edit", "path": "a.txt"}"#, "allow"),
            (r#"{"id": 1, "permission": "read", "path": ".env"}"#, "ask"),
            (r#"{"id": 1, "permission": "webfetch", "url": "http://127.0.0.1/"}"#, "deny"),
            (r#"{"id": 1, "permission": "webfetch", "url": "http://wiki.corp.internal/"}"#, "allow"),
            (r#"{"id": 1, "permission": "doom_loop", "pattern": "bash"}"#, "ask"),
            (r#"{"id": 1, "bash": "ls > f", "cwd": "../out"}"#, "ask"),
            (r#"{"id": 1}"#, "refuse"),
            ("nonsense", "refuse"),
        ];
        for (line, verdict) in table {
            assert_eq!(ask(&policy, line)["verdict"], verdict, "{line}");
        }
        let policy = Policy { rules: r1(&lab.place), place: lab.place.clone(), ..Policy::default() };
        assert_eq!(ask(&policy, r#"{"id": 1, "bash": "git diff | wc"}"#)["verdict"], "ask");
    }
}
