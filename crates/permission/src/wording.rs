//! Questions as text for the user: "write `/etc/hosts`, which is outside the project".
//!
//! Sentences contain no keys and patterns of rules; [`QuestionWording::rules`] lists those.

use super::explain;
use super::rule::{BUILT_IN, OUTSIDE};
use super::shell::CommandAnalysis;
use super::{AccessRequest, Action, AskReason, Rule, UnitVerdict, Verdict};
use base::text;

/// The reason to ask that a rule of the user's settings gives.
const BY_RULE: &str = "your rules ask about it";
/// The reason to ask that a built-in rule gives.
const BY_DEFAULT: &str = "this needs permission by default";

/// A question in parts: "The agent wants to ACTION `OBJECT`, which CLAUSES. You are asked because
/// REASONS."
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QuestionWording {
    /// The action, as an infinitive without "to": "write", "run this command".
    pub action: String,
    /// The object: a path, an address.
    pub object: Option<String>,
    /// Facts about the object: "is outside the project".
    pub object_clauses: Vec<String>,
    /// The reasons to ask that are about more than the object.
    pub reasons: Vec<Reason>,
    /// Text of an MCP server that the question is about, shown verbatim.
    pub quote: Option<String>,
    /// The rules that ask, as they are written.
    pub rules: Vec<String>,
    /// The complete question of a tool, which replaces all of the above.
    pub complete_question: Option<String>,
}

/// A reason to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The part of a command line that it is about, if there are several.
    pub part: Option<String>,
    /// The end of a sentence that begins with "because".
    pub clause: String,
}

impl QuestionWording {
    /// Composes one question about access requests that belong together, each with its verdict: a
    /// command, or all uses of one file.
    ///
    /// `reason` is the reason to ask if a verdict has none of its own; it is ignored for a command.
    pub fn new(asked: &[(&AccessRequest, &Verdict)], reason: Option<&str>) -> Self {
        let Some((request, verdict)) = asked.last() else {
            return Self::default();
        };
        if let Some((_, question)) = &request.minimum
            // The plan tools ask a question of their own, as their minimum verdict.
            && request.permission.starts_with("plan_")
        {
            return Self {
                complete_question: Some(question.clone()),
                ..Self::default()
            };
        }
        let rules = rules(asked);
        if request.command.is_some() {
            return Self {
                action: "run this command".into(),
                reasons: reasons(verdict),
                rules,
                ..Self::default()
            };
        }
        let (verb, object) = action_and_object(request);
        let mut which: Vec<String> = Vec::new();
        let mut reasons: Vec<Reason> = Vec::new();
        for (request, verdict) in asked {
            let clause = request.file.as_ref().and_then(|file| file.which.as_ref());
            which.extend(clause.cloned());
            let minimum_reason = request.minimum.as_ref().map(|(_, reason)| reason.as_str());
            // The clause already states why a file is special.
            let is_news = |stated: &&str| clause.is_none() || minimum_reason != Some(*stated);
            let stated = verdict.reason.as_deref().or(reason).filter(is_news);
            match (clause, stated) {
                (_, Some(stated)) => reasons.push(Reason {
                    part: None,
                    clause: without_period(stated),
                }),
                (None, None) => reasons.push(Reason {
                    part: None,
                    clause: because_of_rule(verdict.rule.as_ref()),
                }),
                (Some(_), None) => {}
            }
            for one in &verdict.further_reasons {
                if one.reason.as_deref().is_none_or(|stated| is_news(&stated)) {
                    reasons.push(Reason {
                        part: None,
                        clause: because(&one.reason, one.rule.as_ref()),
                    });
                }
            }
        }
        let mut reasons = without_repetitions(reasons);
        if !which.is_empty() {
            // The rule is listed, and the clause is a reason.
            reasons.retain(|reason| reason.clause != BY_DEFAULT);
        }
        Self {
            action: verb,
            object,
            object_clauses: which,
            reasons,
            rules,
            ..Self::default()
        }
    }

    /// Returns the reasons that a question states; none if the rules that it lists are the only one.
    pub fn stated_reasons(&self) -> &[Reason] {
        match self.reasons.as_slice() {
            [Reason { part: None, clause }] if clause == BY_RULE && !self.rules.is_empty() => &[],
            reasons => reasons,
        }
    }

    /// Returns whether a question has a list of reasons, because there are several.
    pub fn has_listed_reasons(&self) -> bool {
        self.complete_question.is_none() && self.stated_reasons().len() > 1
    }

    /// Returns the reason to ask in a few words, without a verb if possible: "outside the project".
    pub fn short_reason(&self) -> String {
        if self.complete_question.is_some() {
            return "the user has to decide".to_owned();
        }
        let which = self
            .object_clauses
            .iter()
            .map(|clause| clause.strip_prefix("is ").unwrap_or(clause).to_owned());
        let mut all: Vec<String> = which
            .chain(self.reasons.iter().map(|reason| reason.clause.clone()))
            .collect();
        all.dedup();
        all.join(", ")
    }
}

/// Describes the use of a path by a part of a command line, as a reason to ask: "it reads .env".
pub(super) fn describe_path_use(permission: &str, path: &str) -> String {
    match permission {
        "external_directory" => {
            let location = path.strip_suffix("/*").map_or(path, |location| {
                if location.is_empty() { "/" } else { location }
            });
            format!("it uses {location}, which is outside the project")
        }
        "read" => format!("it reads {path}"),
        "edit" => format!("it changes {path}"),
        permission => format!("it needs {permission} of {path}"),
    }
}

/// Returns the action of an access request, and its object.
fn action_and_object(request: &AccessRequest) -> (String, Option<String>) {
    if let Some(file) = &request.file {
        return (file.verb.to_owned(), Some(file.name.clone()));
    }
    let named = request
        .patterns
        .iter()
        .filter(|pattern| *pattern != "*")
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    let object = Some(named).filter(|named| !named.is_empty());
    let verb = match request.permission.as_str() {
        "webfetch" => "fetch",
        "websearch" => "search the web for",
        "task" => "start the subagent",
        "skill" => "load the skill",
        "glob" | "grep" if object.is_none() => "search the project",
        "glob" | "grep" => "search the project for",
        "list" => "list",
        "read" => "read",
        "edit" => "change",
        "external_directory" => "use",
        "doom_loop" => return ("repeat the same call".to_owned(), None),
        _ => return (format!("use {}", text::title(&request.permission)), object),
    };
    (verb.to_owned(), object)
}

/// Returns the reasons to ask about a command line: without the parts if all parts have the same,
/// otherwise the reasons about the line as a whole, if there are any, and the different reasons of
/// its parts.
fn reasons(verdict: &Verdict) -> Vec<Reason> {
    let asked: Vec<&UnitVerdict> = verdict
        .units
        .iter()
        .filter(|unit| unit.action == Action::Ask)
        .collect();
    let whole = clauses(
        &verdict.reason,
        verdict.rule.as_ref(),
        &verdict.further_reasons,
    );
    let of_part =
        |unit: &&UnitVerdict| clauses(&unit.reason, unit.rule.as_ref(), &unit.further_reasons);
    let by_parts: Vec<Vec<String>> = asked.iter().map(of_part).collect();
    let is_same = |clauses: &Vec<String>| clauses.iter().all(|clause| whole.contains(clause));
    let of_line = |clause: &String| Reason {
        part: None,
        clause: clause.clone(),
    };
    if by_parts.len() == verdict.units.len() && by_parts.iter().all(is_same) {
        return at_a_glance(whole.iter().map(of_line).collect());
    }
    let by_rule = by_parts
        .iter()
        .filter(|part| part.iter().any(|clause| clause == BY_RULE));
    // The question lists the rules, too.
    let is_by_several_rules = by_rule.count() > 1;
    let mut parts: Vec<Reason> = Vec::new();
    for (unit, clauses) in asked.iter().zip(&by_parts) {
        let clauses = clauses.iter();
        let named = clauses.filter(|clause| !is_by_several_rules || *clause != BY_RULE);
        parts.extend(named.map(|clause| Reason {
            part: Some(text::title(&unit.text)),
            clause: clause.clone(),
        }));
    }
    // Those about the line, not about one of its parts.
    let is_of_line = |clause: &&String| {
        is_by_several_rules && *clause == BY_RULE
            || parts.iter().all(|part| part.clause != **clause)
    };
    let mut all: Vec<Reason> = whole.iter().filter(is_of_line).map(of_line).collect();
    if is_by_several_rules && !whole.iter().any(|clause| clause == BY_RULE) {
        all.push(of_line(&BY_RULE.to_owned()));
    }
    all.extend(parts);
    at_a_glance(all)
}

/// Returns a rule or reason that decided and those in addition to it, each once.
fn clauses(reason: &Option<String>, rule: Option<&Rule>, also: &[AskReason]) -> Vec<String> {
    let mut all = vec![because(reason, rule)];
    for one in also {
        let clause = because(&one.reason, one.rule.as_ref());
        if !all.contains(&clause) {
            all.push(clause);
        }
    }
    all
}

/// Returns different reasons, and instead of those that are too many for a glance their number.
fn at_a_glance(reasons: Vec<Reason>) -> Vec<Reason> {
    const MAX_REASONS: usize = 10;
    let mut reasons = without_repetitions(reasons);
    let others = reasons.len().saturating_sub(MAX_REASONS);
    if others > 1 {
        reasons.truncate(MAX_REASONS);
        reasons.push(Reason {
            part: None,
            clause: format!("there are {others} more reasons"),
        });
    }
    reasons
}

fn without_repetitions(reasons: Vec<Reason>) -> Vec<Reason> {
    let mut different: Vec<Reason> = Vec::new();
    for reason in reasons {
        if !different.contains(&reason) {
            different.push(reason);
        }
    }
    different
}

fn because(reason: &Option<String>, rule: Option<&Rule>) -> String {
    match reason {
        Some(reason) => without_period(reason),
        None => because_of_rule(rule),
    }
}

/// Describes a rule, or the absence of one, as a reason to ask.
fn because_of_rule(rule: Option<&Rule>) -> String {
    match rule {
        Some(rule) if rule.source == BUILT_IN || rule.source.is_empty() => BY_DEFAULT.to_owned(),
        Some(_) => BY_RULE.to_owned(),
        None => "no rule allows it".to_owned(),
    }
}

fn without_period(reason: &str) -> String {
    reason.trim_end_matches('.').to_owned()
}

/// Returns the rules of the settings that made these a question, as they are written.
fn rules(asked: &[(&AccessRequest, &Verdict)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (_, verdict) in asked {
        let units = verdict
            .units
            .iter()
            .filter(|unit| unit.action == Action::Ask);
        let of_units =
            units.flat_map(|unit| rules_among(unit.rule.as_ref(), &unit.further_reasons));
        let decided = if verdict.action == Action::Ask {
            verdict.rule.as_ref()
        } else {
            None
        };
        for rule in rules_among(decided, &verdict.further_reasons).chain(of_units) {
            // The user's settings have no such line.
            if matches!(rule.source.as_str(), BUILT_IN | "") {
                continue;
            }
            let line = explain::written(rule);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    lines
}

fn rules_among<'v>(
    decided: Option<&'v Rule>,
    also: &'v [AskReason],
) -> impl Iterator<Item = &'v Rule> {
    let others = also.iter().filter_map(|one| one.rule.as_ref());
    decided.into_iter().chain(others)
}

/// Describes the grant that "always" would store: "commands that begin with git log".
pub fn describe_grant(request: &AccessRequest) -> String {
    if request.grants_reading {
        return describe_grant(&AccessRequest {
            permission: OUTSIDE.to_owned(),
            always: request.always.clone(),
            only_reads: true,
            ..AccessRequest::default()
        });
    }
    let mut prefixes: Vec<&str> = Vec::new();
    let mut others: Vec<String> = Vec::new();
    for pattern in &request.always {
        match pattern.strip_suffix(" *") {
            Some(prefix) if request.permission == "bash" => prefixes.push(prefix),
            _ => others.push(describe_pattern(request, pattern)),
        }
    }
    if !prefixes.is_empty() {
        others.insert(
            0,
            format!("commands that begin with {}", prefixes.join(" or ")),
        );
    }
    others.join(", ")
}

fn describe_pattern(request: &AccessRequest, pattern: &str) -> String {
    let below = pattern.strip_suffix("/*");
    match (request.permission.as_str(), below) {
        ("bash", _) => describe_command_pattern(request, pattern),
        (OUTSIDE, Some(directory)) if request.only_reads => format!("reading in {directory}"),
        (OUTSIDE, Some(directory)) => format!("reading, writing and deleting in {directory}"),
        ("webfetch", Some(site)) => format!("fetching from {site}"),
        ("edit", _) => format!("changes to {pattern}"),
        ("read", _) => match pattern
            .strip_prefix("mcp:")
            .and_then(|rest| rest.strip_suffix(":*"))
        {
            Some(server) => format!("reading what {server} offers"),
            None => format!("reading {pattern}"),
        },
        ("skill", _) => format!("the skill {pattern}"),
        ("task", _) => format!("the subagent {pattern}"),
        ("list", _) => format!("listing {pattern}"),
        ("glob" | "grep", _) => "searching the project".to_owned(),
        ("doom_loop", _) => format!("repeated calls of {pattern}"),
        (permission, _) if pattern == "*" => permission.to_owned(),
        (permission, _) => format!("{permission} {pattern}"),
    }
}

fn describe_command_pattern(request: &AccessRequest, pattern: &str) -> String {
    let reaches = |line: &CommandAnalysis| {
        line.units
            .iter()
            .any(|unit| unit.only_destination() == Some(pattern))
    };
    if let Some((command, location)) = pattern.rsplit_once(' ')
        && request.command.as_deref().is_some_and(reaches)
    {
        return format!("{command} to {location}");
    }
    format!("exactly {pattern}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::CommandUnit;

    #[test]
    fn reason_of_a_verdict_precedes_the_general_reason() {
        let general = "the same call was made 3 times";
        for (own, expected) in [(Some("a hook asks"), "a hook asks"), (None, general)] {
            let request = AccessRequest::new("doom_loop", "read");
            let verdict = Verdict {
                action: Action::Ask,
                pattern: "read".to_owned(),
                rule: None,
                reason: own.map(str::to_owned),
                is_by_posture: false,
                further_reasons: Vec::new(),
                units: Vec::new(),
                is_proven_read_only: false,
            };
            let wording = QuestionWording::new(&[(&request, &verdict)], Some(general));
            let clauses: Vec<&str> = wording
                .reasons
                .iter()
                .map(|reason| reason.clause.as_str())
                .collect();
            assert_eq!(clauses, [expected]);
        }
    }

    #[test]
    fn grants_are_worded_by_permission() {
        let outside = |only_reads| {
            describe_grant(&AccessRequest {
                only_reads,
                ..AccessRequest::new(OUTSIDE, "/etc/*").always("/etc/*")
            })
        };
        assert_eq!(outside(true), "reading in /etc");
        assert_eq!(outside(false), "reading, writing and deleting in /etc");
        let table: [(&str, &[&str], &str); 7] = [
            (
                "bash",
                &["git log *", "rm a", "head *"],
                "commands that begin with git log or head, exactly rm a",
            ),
            ("edit", &["src/a.rs"], "changes to src/a.rs"),
            ("read", &["mcp:notes:*"], "reading what notes offers"),
            (
                "webfetch",
                &["https://x.test/*"],
                "fetching from https://x.test",
            ),
            ("notes_find", &["*"], "notes_find"),
            ("station", &["Bonn"], "station Bonn"),
            ("task", &["explore"], "the subagent explore"),
        ];
        for (permission, always, words) in table {
            let always = always.iter().map(|pattern| (*pattern).to_owned()).collect();
            assert_eq!(
                describe_grant(&AccessRequest {
                    permission: permission.into(),
                    always,
                    ..AccessRequest::default()
                }),
                words
            );
        }
        let destination = Some("curl https://x.test".to_owned());
        let line = CommandAnalysis {
            units: vec![CommandUnit {
                destination,
                ..CommandUnit::default()
            }],
            ..CommandAnalysis::default()
        };
        let always = vec!["curl https://x.test".to_owned()];
        let curl = AccessRequest {
            permission: "bash".into(),
            always,
            command: Some(line.into()),
            ..AccessRequest::default()
        };
        assert_eq!(describe_grant(&curl), "curl to https://x.test");
    }
}
