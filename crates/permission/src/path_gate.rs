//! The path gate: decides whether a path may be used.
//!
//! File tools, commands, `permissions check` and `permissions explain` all use it. Locating a path
//! (`locate.rs`) needs no rules; only this module consults them, so that `locate` does not depend
//! on `evaluate`.

use super::decide::judge_object;
use super::locate::{Located, PathKind, PathRefusal, locate};
use super::{Access, AccessRequest, Action, Policy, Rule, Rules, Verdict, evaluate};

/// A reason why a path may not be used, about which the user is not asked.
#[derive(Debug, Clone)]
pub enum PathDenied {
    /// A rule or a minimum verdict forbids it.
    Denied(Box<(AccessRequest, Verdict)>),
    Refused(PathRefusal),
}

/// Locates a path, and checks it for denies first and then for reasons why it cannot be used at
/// all.
///
/// The rules have not been asked about the rest: the caller judges the returned path's
/// [`Located::requests`].
///
/// # Errors
/// [`PathDenied::Denied`] if a rule or a minimum verdict denies one of its access requests,
/// [`PathDenied::Refused`] if the path cannot be located or used.
pub fn check_path(policy: &Policy, access: Access, text: &str) -> Result<Located, PathDenied> {
    let denial = |request: AccessRequest| {
        let verdict = evaluate(&policy.rules, &policy.grants, &request);
        let is_denied = verdict.action == Action::Deny;
        is_denied.then(|| PathDenied::Denied(Box::new((request, verdict))))
    };
    let located = match locate(text, &policy.context) {
        Ok(located) => located,
        Err(refusal) => {
            // If all edits are denied, that is also the answer for a path that cannot be located.
            if access == Access::Edit
                && let Some(denied) = denial(AccessRequest::new("edit", text))
            {
                return Err(denied);
            }
            return Err(PathDenied::Refused(refusal));
        }
    };
    if let Some(denied) = located.requests(access).into_iter().find_map(denial) {
        return Err(denied);
    }
    match located.refusal(access) {
        Some(refusal) => Err(PathDenied::Refused(refusal)),
        None => Ok(located),
    }
}

/// Returns the request to list a directory, in addition to reading it, if a rule that names `list`
/// decides about it, or is the last one about it; otherwise rules for every tool judge the reading.
pub fn listing(policy: &Policy, located: &Located) -> Option<AccessRequest> {
    if located.kind != PathKind::Directory {
        return None;
    }
    let reading = located.requests(Access::Read).pop()?;
    let listing = AccessRequest {
        permission: "list".to_owned(),
        ..reading
    };
    let names_list = |rule: &Rule| !rule.permission.contains('*');
    let is_about_lists = |rules: &Rules| {
        let is_last = rules
            .last_about("list")
            .is_some_and(|(_, rule)| names_list(rule));
        // A deny is in force although a broader rule for every tool follows it.
        let is_decided = |pattern: &String| {
            judge_object(rules, listing.object(pattern))
                .1
                .is_some_and(names_list)
        };
        is_last || listing.patterns.iter().any(is_decided)
    };
    if !is_about_lists(&policy.rules) && !is_about_lists(&policy.ask_rules) {
        return None;
    }
    Some(listing)
}

/// The result of judging the use of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathVerdict {
    Judged(Verdict),
    Refused(PathRefusal),
}

/// Judges a use of a path together with the access requests in `more`, and returns the strictest
/// verdict.
pub fn judge_path(
    policy: &Policy,
    access: Access,
    text: &str,
    more: Vec<AccessRequest>,
) -> PathVerdict {
    let requests = match check_path(policy, access, text) {
        Ok(located) => {
            let mut requests = located.requests(access);
            if access == Access::Read {
                requests.extend(listing(policy, &located));
            }
            requests
        }
        Err(PathDenied::Denied(denied)) => return PathVerdict::Judged(denied.1),
        Err(PathDenied::Refused(refusal)) => return PathVerdict::Refused(refusal),
    };
    let requests = requests
        .into_iter()
        .map(|request| policy.in_sandbox(request))
        .chain(more);
    let verdicts = requests.map(|request| policy.judge(&request));
    // The first of the strictest verdicts.
    let strictest = verdicts.reduce(|strictest, next| {
        if next.action > strictest.action {
            next
        } else {
            strictest
        }
    });
    PathVerdict::Judged(strictest.unwrap_or_else(|| Verdict::allowed(text)))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::super::case_tables::PathFixture;
    use super::*;
    use crate::Action::{Allow, Ask};

    #[test]
    fn lists_that_the_session_asks_about_are_asked() {
        let lab = PathFixture::new();
        for (asks, wanted) in [
            (Rules::default(), Allow),
            (Rules::written("list", &[("*", Ask)]), Ask),
            (Rules::written("glob", &[("*", Ask)]), Allow),
        ] {
            let policy = Policy {
                rules: Rules::written("*", &[("*", Allow)]),
                ask_rules: asks,
                context: lab.context.clone(),
                ..Policy::default()
            };
            let judged = judge_path(&policy, Access::Read, ".", Vec::new());
            let action = match judged {
                PathVerdict::Judged(verdict) => Some(verdict.action),
                PathVerdict::Refused(_) => None,
            };
            assert_eq!(action, Some(wanted), "{:?}", policy.ask_rules);
        }
    }
}
