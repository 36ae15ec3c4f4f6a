//! Messages to the model on denied calls, so that its next call can be a valid one.

use std::net::IpAddr;

use base::text;
use permission::evaluate::only_reads;
use permission::explain::written;
use permission::rule::BUILT_IN;
use permission::url::{self, Address};
use permission::wording::QuestionWording;
use permission::{AccessRequest, Action, Denial, Rule, Rules, Verdict, evaluate};

use crate::Failure;

/// The beginning of each message about a denial by a rule.
pub const NOT_ALLOWED: &str = "Not allowed";

/// The request to the model at the end of a denial. Users do not need it.
pub const NO_WORKAROUND: &str = "Do not try to work around this.";

/// The beginning of the text after a call that the user has rejected.
pub const YOU_REJECTED: &str = "You rejected ";

/// Describes the denied access, the rule that denies it, and the alternative. `rules` are those of
/// the agent.
pub fn explain(verdict: &Verdict, request: &AccessRequest, rules: &Rules) -> String {
    let what = format!("{} {}", request.permission, text::title(&verdict.pattern));
    if by_posture(verdict) && only_reads(rules) {
        return match evaluate(
            rules,
            &Rules::default(),
            &AccessRequest::new("plan_exit", "*"),
        )
        .action
        {
            Action::Deny => format!(
                "Not allowed ({what}): this agent only reads. Report what would have to be done instead."
            ),
            _ => format!(
                "Not allowed in plan mode ({what}): nothing may be changed before the user has approved a plan. Put the change into the plan; when the plan is complete, call plan_exit."
            ),
        };
    }
    match (&verdict.rule, &verdict.reason) {
        (_, Some(reason)) if is_this_machine(request, verdict) => format!(
            "Not allowed ({what}): {reason} webfetch does not access this machine. For a server of the project use curl in bash."
        ),
        (Some(rule), None) if request.permission == "doom_loop" => format!(
            "Not allowed: the same call was made repeatedly, and the rule {} denies that. Try something else.",
            written(rule)
        ),
        (_, Some(reason)) => {
            format!("Not allowed ({what}): {reason} {NO_WORKAROUND}")
        }
        (Some(rule), None) => format!(
            "Not allowed: the rule {} denies {what}. {NO_WORKAROUND}",
            written(rule)
        ),
        (None, None) => format!("Not allowed: {what}."),
    }
}

/// Describes that a rule denies every use of a tool.
pub fn of_tool(rule: &Rule, tool: &str) -> String {
    format!(
        "Not allowed: the rule {} denies every use of {tool}. {NO_WORKAROUND}",
        written(rule)
    )
}

/// Returns the failure of a call if no user can be asked: the reason for the question, and an
/// alternative that needs no question. `asked` are the requests that the user would be asked about.
/// A repeated call ends the turn.
pub fn unanswered(asked: &[(&AccessRequest, &Verdict)], wording: &QuestionWording) -> Failure {
    let Some((request, verdict)) = asked.last() else {
        return Failure::Denied(Denial::Rejected);
    };
    let means = match request.permission.as_str() {
        "doom_loop" => {
            return Failure::Stopped(format!(
                "Not allowed: {}. No user is present to allow it, so the turn ends here.",
                wording.short_reason()
            ));
        }
        "plan_exit" => {
            return Failure::Denied(Denial::Unanswered(
                "Not allowed: no user is present to approve the plan. Give the plan as your answer.".into(),
            ));
        }
        "plan_enter" => "Continue in the current mode.",
        _ if request.command.is_some()
            && verdict
                .units
                .iter()
                .any(|unit| unit.action == Action::Allow) =>
        {
            "The other parts of the line are allowed on their own."
        }
        _ if asked
            .iter()
            .any(|(request, _)| request.permission == "external_directory") =>
        {
            "Files in the project need no permission."
        }
        "edit" => "Leave the file unchanged, and describe the change in your answer.",
        _ => "Continue without it.",
    };
    Failure::Denied(Denial::Unanswered(format!(
        "Not allowed: this needs the user's permission ({}), and no user is present. {means} Do not repeat the call; say in your answer what could not be done.",
        wording.short_reason()
    )))
}

/// Returns whether an access is denied because the agent only reads, not by a rule of the user or
/// because of the access itself.
fn by_posture(verdict: &Verdict) -> bool {
    match &verdict.rule {
        Some(rule) => {
            rule.source == BUILT_IN && matches!(rule.permission.as_str(), "edit" | "task")
        }
        None => verdict.is_by_posture,
    }
}

/// Returns whether a request is for a URL on the user's own machine, as its host obviously shows.
fn is_this_machine(request: &AccessRequest, verdict: &Verdict) -> bool {
    let Some(address) = (request.permission == url::PERMISSION)
        .then(|| Address::read(&verdict.pattern).ok())
        .flatten()
    else {
        return false;
    };
    let host = address.host.trim_start_matches('[').trim_end_matches(']');
    let loopback = host
        .parse::<IpAddr>()
        .is_ok_and(|address| address.to_canonical().is_loopback());
    loopback || host == "localhost" || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;
    use permission::Rule;

    #[test]
    fn denial_names_the_alternative() {
        use Action::{Allow, Ask, Deny};
        let plan = Rules::built_in(&[
            ("*", "*", Allow),
            ("edit", "*", Deny),
            ("plan_exit", "*", Ask),
        ]);
        let explore = Rules::built_in(&[("*", "*", Deny), ("read", "*", Allow)]);
        let build = Rules::built_in(&[("*", "*", Allow)]);
        let own = |permission: &str, pattern: &str| Rule {
            permission: permission.into(),
            pattern: pattern.into(),
            action: Deny,
            source: "opencode.json:1".into(),
        };
        let mut strict = plan.clone();
        strict.extend([own("edit", "secret/*")]);
        let mut looping = build.clone();
        looping.extend([own("doom_loop", "*"), own("bash", "rm *")]);
        let fetch = |address: &str| Address::read(address).unwrap().access_request(&[], &[]);
        let means = "Do not try to work around this.";
        let table = [
            (
                &plan,
                AccessRequest::new("edit", "a.txt"),
                "Not allowed in plan mode (edit a.txt): ",
                "call plan_exit.",
            ),
            (
                &explore,
                AccessRequest::new("edit", "a.txt"),
                "Not allowed",
                means,
            ),
            (
                &strict,
                AccessRequest::new("edit", "secret/x"),
                "Not allowed: the rule \"edit\": { \"secret/*\": \"deny\" } (opencode.json:1)",
                means,
            ),
            (
                &looping,
                AccessRequest::new("bash", "rm x"),
                "Not allowed: the rule \"bash\": { \"rm *\": \"deny\" }",
                means,
            ),
            (
                &looping,
                AccessRequest::new("doom_loop", "read"),
                "Not allowed: the same call",
                "Try something else.",
            ),
            (
                &build,
                fetch("http://localhost:4096/"),
                "Not allowed (webfetch http://localhost:4096/)",
                "use curl in bash.",
            ),
            (
                &build,
                fetch("http://127.0.0.1/"),
                "Not allowed (webfetch",
                "use curl in bash.",
            ),
            (
                &build,
                fetch("http://[::1]:80/"),
                "Not allowed (webfetch",
                "use curl in bash.",
            ),
            (
                &build,
                fetch("http://169.254.169.254/"),
                "Not allowed (webfetch",
                means,
            ),
            (
                &build,
                fetch("http://10.0.0.1/"),
                "Not allowed (webfetch",
                means,
            ),
        ];
        for (rules, request, begins, ends) in table {
            let verdict = evaluate(rules, &Rules::default(), &request);
            assert_eq!(verdict.action, Deny, "{request:?}");
            let message = explain(&verdict, &request, rules);
            assert!(
                message.starts_with(begins) && message.ends_with(ends),
                "{message}"
            );
        }
    }
}
