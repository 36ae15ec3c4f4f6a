//! Applies the user's [`Approvals`] of a session to verdicts. A deny is a deny under all of them.
//!
//! `default` leaves the verdict unchanged: see the principle at the top of this crate's README.
//!
//! `ask` turns an allow into a question if the call changes something or may do so: an edit, a
//! command that is not known to be harmless, a tool of an MCP server. Grants make no difference.
//!
//! Rules of a session that ask ([`Policy::ask_rules`]) turn an allow into a question as well, under all
//! of them, and grants make no difference.
//!
//! So does a hook ([`AccessRequest::hook_question`]); nothing but the user answers its question.
//!
//! `sandboxed` removes questions that come from rules if a tested sandbox confines the effects to
//! the project, without network. It removes no question about effects that a sandbox does not
//! prevent: reading outside the project or files that may hold keys, control files, lines that
//! could not be analysed or may run something that a rule denies, web pages, tools of servers,
//! repeated calls.

use super::rule::{BUILT_IN, OUTSIDE, READING_OUTSIDE};
use super::{AccessRequest, Action, Policy, RequestEffect, Rule, Rules, Verdict, evaluate};
use base::approvals::Approvals;

impl Policy {
    /// Judges an access request. If `doubt` is set, also asks about everything that
    /// [`Approvals::Ask`] asks about.
    pub fn judge(&self, request: &AccessRequest) -> Verdict {
        self.judge_with(&self.grants, request)
    }

    /// Returns whether granting the patterns of "always" would answer the question for good.
    ///
    /// If not, "always" must not be offered: for example for a command that also changes a file
    /// which the user is asked about.
    pub fn is_answered_by_always(&self, request: &AccessRequest) -> bool {
        let granted = |pattern: &String| Rule {
            permission: request.granted_permission().to_owned(),
            pattern: pattern.clone(),
            action: Action::Allow,
            source: BUILT_IN.into(),
        };
        if request.always.is_empty() {
            return false;
        }
        let always = request.always.iter().map(granted).collect();
        let grants = self.grants.clone().then(&always);
        self.judge_with(&grants, request).action == Action::Allow
    }

    /// Returns whether both give the same verdicts on access requests.
    pub fn judges_as(&self, other: &Self) -> bool {
        self.approvals == other.approvals
            && self.unreadable_settings == other.unreadable_settings
            && self.ask_rules.is_same(&other.ask_rules)
            && self.rules.is_same(&other.rules)
            && self.grants.is_same(&other.grants)
    }

    /// Returns a file access as it is in the sandbox of commands, or without one if there is none.
    #[must_use]
    pub fn in_sandbox(&self, request: AccessRequest) -> AccessRequest {
        let request = AccessRequest {
            guarantee: self.sandbox.guarantee,
            ..request
        };
        if self.sandbox.can_isolate && self.approvals == Approvals::Sandboxed {
            isolated(request)
        } else {
            request
        }
    }

    fn judge_with(&self, grants: &Rules, request: &AccessRequest) -> Verdict {
        let verdict = self.judge_without_hooks(grants, request);
        match &request.hook_question {
            Some(why) => verdict.with_reason_to_ask(why),
            None => verdict,
        }
    }

    fn judge_without_hooks(&self, grants: &Rules, request: &AccessRequest) -> Verdict {
        let verdict = self.judge_in_doubt(grants, request);
        if verdict.action != Action::Allow || !self.is_asked(grants, request) {
            return verdict;
        }
        Verdict {
            action: Action::Ask,
            rule: None,
            reason: Some("the client of this session requires a question".to_owned()),
            ..verdict
        }
    }

    /// Returns whether the session asks about an access request that is allowed otherwise. Grants
    /// and the sandbox make no difference.
    fn is_asked(&self, grants: &Rules, request: &AccessRequest) -> bool {
        if self.ask_rules.is_empty() {
            return false;
        }
        let request = AccessRequest {
            is_isolated: false,
            ..request.clone()
        };
        let none = Rules::default();
        let asks =
            |rule: &Option<Rule>| rule.as_ref().is_some_and(|rule| rule.action == Action::Ask);
        let everything = Rules::built_in(&[("*", "*", Action::Allow)]);
        let alone = evaluate(&everything.clone().then(&self.ask_rules), &none, &request);
        if asks(&alone.rule) || alone.units.iter().any(|unit| asks(&unit.rule)) {
            return true;
        }
        // Another reason to ask hides the rule, unless the usual rules remove that reason. The
        // usual rules may ask themselves, and the sandbox answer that, but not the session.
        let usual = self.rules.clone().then(&as_rules(grants));
        let is_allowed = |rules: &Rules| evaluate(rules, &none, &request).action == Action::Allow;
        [everything, usual]
            .iter()
            .any(|rules| is_allowed(rules) && !is_allowed(&rules.clone().then(&self.ask_rules)))
    }

    fn judge_in_doubt(&self, grants: &Rules, request: &AccessRequest) -> Verdict {
        let Some(doubt) = &self.unreadable_settings else {
            return self.judge_under(self.approvals, grants, request);
        };
        let verdict = self.judge_under(Approvals::Ask, grants, request);
        let usual = if self.approvals == Approvals::Ask {
            Approvals::Default
        } else {
            self.approvals
        };
        if verdict.action == Action::Ask
            && self.judge_under(usual, grants, request).action == Action::Allow
        {
            return Verdict {
                rule: None,
                reason: Some(doubt.clone()),
                ..verdict
            };
        }
        verdict
    }

    fn judge_under(
        &self,
        approvals: Approvals,
        grants: &Rules,
        request: &AccessRequest,
    ) -> Verdict {
        let verdict = if request.is_isolated && approvals != Approvals::Sandboxed {
            let request = AccessRequest {
                is_isolated: false,
                ..request.clone()
            };
            evaluate(&self.rules, grants, &request)
        } else {
            evaluate(&self.rules, grants, request)
        };
        if approvals == Approvals::Ask && verdict.action == Action::Allow && acts(request, &verdict)
        {
            return Verdict {
                action: Action::Ask,
                rule: None,
                reason: Some("approvals are set to \"ask\"".to_owned()),
                ..verdict
            };
        }
        verdict
    }
}

/// Returns grants as rules. A grant of reading outside becomes a rule about every use, which can
/// only add to what the session asks about.
fn as_rules(grants: &Rules) -> Rules {
    let as_rule = |grant: &Rule| {
        let mut rule = grant.clone();
        if rule.permission == READING_OUTSIDE {
            OUTSIDE.clone_into(&mut rule.permission);
        }
        rule
    };
    grants.iter().map(as_rule).collect()
}

/// Returns the access request as it is in a tested sandbox without network: a command, or a change
/// of a file that commands could make as well.
#[must_use]
pub fn isolated(request: AccessRequest) -> AccessRequest {
    AccessRequest {
        is_isolated: request.command.is_some() || request.effect == RequestEffect::ChangesProject,
        ..request
    }
}

/// Returns whether it changes something, or may do so.
fn acts(request: &AccessRequest, verdict: &Verdict) -> bool {
    request.effect == RequestEffect::Unknown
        || request.permission == "edit"
        || request.command.is_some() && !verdict.is_proven_read_only
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::sync::Arc;

    use super::super::case_tables::{PathFixture, bash_rules, plan_rules};
    use super::super::command_request;
    use super::*;
    use crate::Action::{Allow, Ask, Deny};
    use crate::check::check_line;
    use crate::plan::SandboxCapabilities;

    fn judging(approvals: Approvals, rules: &Rules) -> Policy {
        Policy {
            approvals,
            rules: rules.clone(),
            ..Policy::default()
        }
    }

    #[test]
    fn approvals_turn_command_verdicts() {
        let lab = PathFixture::new();
        let open = bash_rules(&lab.context, &[("*", Allow)]);
        let asks = bash_rules(&lab.context, &[("*", Ask), ("touch *", Ask)]);
        let denies = bash_rules(&lab.context, &[("*", Ask), ("rm*", Deny)]);
        let plan = plan_rules(&lab.context);
        // The rules and the command; the verdict under `default`, under `ask`, and under
        // `sandboxed` with a sandbox.
        let table = [
            (&open, "ls", [Allow, Allow, Allow]),
            (&open, "touch x", [Allow, Ask, Allow]),
            (&open, "python3 -c 1", [Allow, Ask, Allow]),
            (&open, "ls; touch x", [Allow, Ask, Allow]),
            (&asks, "ls", [Ask, Ask, Allow]),
            (&asks, "touch x", [Ask, Ask, Allow]),
            (&asks, "python3 -c 1", [Ask, Ask, Allow]),
            (&asks, "curl http://a.example", [Ask, Ask, Allow]),
            // Not prevented by a sandbox: reading elsewhere, keys, control files, lines that cannot
            // be analysed.
            (&asks, "cat ../out/f", [Ask, Ask, Ask]),
            (&asks, "touch ../out/made", [Ask, Ask, Ask]),
            (&asks, "cat .env", [Ask, Ask, Ask]),
            (&open, "echo x > .git/hooks/pre-commit", [Ask, Ask, Ask]),
            (&asks, "echo x > .git/hooks/pre-commit", [Ask, Ask, Ask]),
            (&asks, "$(cat which) x", [Ask, Ask, Ask]),
            (&denies, "rm x", [Deny, Deny, Deny]),
            (&denies, "touch x; rm x", [Deny, Deny, Deny]),
            (&denies, "touch x", [Ask, Ask, Allow]),
            // It may be a denied command.
            (&denies, "python3 -c 'os.system(\"rm x\")'", [Ask, Ask, Ask]),
            (&plan, "touch x", [Deny, Deny, Deny]),
            (&plan, "python3 -c 1", [Ask, Ask, Allow]),
        ];
        for (rules, command, wanted) in table {
            let request = isolated(command_request(command, &lab.context));
            let all = [Approvals::Default, Approvals::Ask, Approvals::Sandboxed];
            let found = all.map(|approvals| judging(approvals, rules).judge(&request).action);
            assert_eq!(found, wanted, "{command}");
            // Without a sandbox, `sandboxed` is the same as `default`.
            let bare = command_request(command, &lab.context);
            assert_eq!(
                judging(Approvals::Sandboxed, rules).judge(&bare).action,
                wanted[0],
                "{command}"
            );
        }
    }

    #[test]
    fn asks_of_a_session_only_make_verdicts_stricter() {
        let lab = PathFixture::new();
        let rules = bash_rules(
            &lab.context,
            &[("*", Ask), ("touch *", Allow), ("rm*", Deny)],
        )
        .then(&Rules::written("edit", &[("*", Allow), ("*.lock", Deny)]));
        let everything = Rules::written("*", &[("*", Ask)]);
        let touches = Rules::written("bash", &[("touch *", Ask)]);
        let text_files = Rules::written("edit", &[("*.txt", Ask)]);
        let none = Rules::default();
        let granted = Rules::written("bash", &[("ls *", Allow), ("touch *", Allow)]);
        let command = |line: &str| isolated(command_request(line, &lab.context));
        let edit = |path: &str| {
            isolated(AccessRequest {
                effect: RequestEffect::ChangesProject,
                ..AccessRequest::new("edit", path)
            })
        };
        // The asks of the session, the request; the verdicts without grants, with grants of
        // commands, and under `sandboxed`.
        let table = [
            (&none, command("touch x"), [Allow, Allow, Allow]),
            (&everything, command("touch x"), [Ask, Ask, Ask]),
            (&everything, command("rm x"), [Deny, Deny, Deny]),
            (&everything, edit("a.lock"), [Deny, Deny, Deny]),
            (&touches, command("touch x"), [Ask, Ask, Ask]),
            (&touches, command("ls; touch x"), [Ask, Ask, Ask]),
            (&touches, command("ls"), [Ask, Allow, Allow]),
            (&touches, edit("a.txt"), [Allow, Allow, Allow]),
            (&text_files, edit("a.txt"), [Ask, Ask, Ask]),
            (&text_files, edit("a.rs"), [Allow, Allow, Allow]),
        ];
        for (asks, request, wanted) in table {
            let of = |approvals, grants: &Rules| {
                let policy = Policy {
                    ask_rules: asks.clone(),
                    grants: grants.clone(),
                    ..judging(approvals, &rules)
                };
                policy.judge(&request).action
            };
            let found = [
                of(Approvals::Default, &none),
                of(Approvals::Default, &granted),
                of(Approvals::Sandboxed, &none),
            ];
            assert_eq!(found, wanted, "{asks:?} {request:?}");
        }
        let policy = Policy {
            ask_rules: text_files,
            ..judging(Approvals::Default, &rules)
        };
        assert!(!policy.is_answered_by_always(&edit("a.txt").always("*.txt")));
        assert!(!policy.judges_as(&judging(Approvals::Default, &rules)));
    }

    #[test]
    fn approvals_turn_verdicts_on_files_pages_and_tools() {
        let lab = PathFixture::new();
        let rules = |edit| {
            bash_rules(&lab.context, &[]).then(&Rules::built_in(&[
                ("edit", "*", edit),
                ("webfetch", "*", Ask),
            ]))
        };
        // The rules' action for edits, the request; the verdicts under the three approvals.
        let table = [
            (
                Allow,
                r#""permission": "edit", "path": "a.txt""#,
                ["allow", "ask", "allow"],
            ),
            (
                Ask,
                r#""permission": "edit", "path": "a.txt""#,
                ["ask", "ask", "allow"],
            ),
            (
                Deny,
                r#""permission": "edit", "path": "a.txt""#,
                ["deny", "deny", "deny"],
            ),
            (
                Ask,
                r#""permission": "edit", "path": "../out/x""#,
                ["ask", "ask", "ask"],
            ),
            (
                Ask,
                r#""permission": "edit", "path": ".git/config""#,
                ["ask", "ask", "ask"],
            ),
            (
                Allow,
                r#""permission": "read", "path": "a.txt""#,
                ["allow", "allow", "allow"],
            ),
            (
                Allow,
                r#""permission": "read", "path": ".env""#,
                ["ask", "ask", "ask"],
            ),
            (
                Allow,
                r#""permission": "webfetch", "pattern": "http://a.example/""#,
                ["ask", "ask", "ask"],
            ),
            (
                Allow,
                r#""permission": "doom_loop", "pattern": "bash""#,
                ["ask", "ask", "ask"],
            ),
        ];
        for (edit, question, wanted) in table {
            let all = [Approvals::Default, Approvals::Ask, Approvals::Sandboxed];
            let found = all.map(|approvals| {
                let context = lab.context.clone();
                let policy = Policy {
                    rules: rules(edit),
                    context,
                    approvals,
                    sandbox: SandboxCapabilities {
                        can_isolate: true,
                        ..SandboxCapabilities::default()
                    },
                    ..Policy::default()
                };
                let no_command = |_: &str, _: &Arc<Policy>| Err("no command".to_owned());
                let line = format!(r#"{{"id": 1, {question}}}"#);
                let line = check_line(&Arc::new(policy), &[], no_command, &line);
                serde_json::from_str::<serde_json::Value>(&line).unwrap()["verdict"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            });
            assert_eq!(found.each_ref().map(String::as_str), wanted, "{question}");
        }
        let tool = AccessRequest {
            effect: RequestEffect::Unknown,
            ..AccessRequest::new("notes_find", "*").always("*")
        };
        let open = Rules::built_in(&[("*", "*", Allow)]);
        let asked = Rules::built_in(&[("*", "*", Ask)]);
        let of = |approvals, rules| judging(approvals, rules).judge(&tool).action;
        assert_eq!(
            [of(Approvals::Default, &open), of(Approvals::Ask, &open)],
            [Allow, Ask]
        );
        let sandboxed = judging(Approvals::Sandboxed, &asked);
        assert_eq!(sandboxed.judge(&isolated(tool.clone())).action, Ask);
        // No grant settles a question that is asked every time.
        let edit = AccessRequest {
            effect: RequestEffect::ChangesProject,
            ..AccessRequest::new("edit", "a.txt").always("a.txt")
        };
        assert!(judging(Approvals::Default, &asked).is_answered_by_always(&edit));
        assert!(!judging(Approvals::Ask, &asked).is_answered_by_always(&edit));
    }

    #[test]
    fn nothing_answers_the_question_of_a_hook() {
        let edit = isolated(AccessRequest {
            effect: RequestEffect::ChangesProject,
            hook_question: Some("a hook asks".into()),
            ..AccessRequest::new("edit", "a.txt").always("a.txt")
        });
        for (rule, wanted) in [(Allow, Ask), (Ask, Ask), (Deny, Deny)] {
            for approvals in [Approvals::Default, Approvals::Ask, Approvals::Sandboxed] {
                let policy = Policy {
                    grants: Rules::built_in(&[("edit", "a.txt", Allow)]),
                    ..judging(approvals, &Rules::built_in(&[("edit", "a.txt", rule)]))
                };
                let verdict = policy.judge(&edit);
                assert_eq!(verdict.action, wanted, "{rule:?} {approvals:?}");
                assert!(
                    !policy.is_answered_by_always(&edit),
                    "{rule:?} {approvals:?}"
                );
            }
        }
    }
}
