//! Judges parts of a command line by the rules about commands. Only rules that may apply are
//! compared.

use super::decide::{ISOLATED, decide, is_in_force, judge, without_command};
use super::posture::{read_only_verdict, with_refusal};
use super::rule::BUILT_IN;
use super::rule_index::{IndexedRule, RulesAbout, UnitKeys};
use super::shell::{CommandAnalysis, CommandUnit, Effect};
use super::wildcard::UNKNOWN;
use super::{
    AccessRequest, Action, AskReason, PathUse, Rule, Rules, SandboxGuarantee, UnitVerdict, Verdict,
    arity, first_word, unparsed, wildcard, wording, written_line,
};

/// The reason for an allow if the read-only sandbox makes an unknown command harmless.
const CONFINED: &str =
    "it is not known to be harmless, but its sandbox keeps it from changing anything";

/// Adds to a reason why something is unknown the rule that makes it matter.
pub(super) fn may_apply_to_hidden(reason: &str, rule: &Rule) -> String {
    format!(
        "{reason}, and your rule about {}, \"{}\", may apply to what it does",
        rule.permission, rule.pattern
    )
}

/// The sandbox that counts for a part of a command line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Confinement {
    /// The guarantee that answers unknowns about the part.
    pub(super) unknowns: SandboxGuarantee,
    /// The guarantee that answers questions about temporary files.
    pub(super) files: SandboxGuarantee,
}

impl Confinement {
    pub(super) fn of(guarantee: SandboxGuarantee) -> Self {
        Self {
            unknowns: guarantee,
            files: guarantee,
        }
    }

    /// Returns whether an access request is about a file that needs no question in the sandbox.
    fn answers_request(self, request: &AccessRequest, rule: Option<&Rule>) -> bool {
        let is_certain = self.unknowns == self.files || request.is_temporary;
        is_certain && self.files.answers_request(request, rule)
    }
}

/// The rules about commands, prepared for evaluation.
pub(super) struct CommandRules<'r> {
    rules: &'r Rules,
    grants: &'r Rules,
    /// The rules about the permission of the access request.
    pub(super) about: RulesAbout<'r>,
    granted: RulesAbout<'r>,
    /// The position of the rule that makes the agent read-only.
    posture: Option<usize>,
    /// A deny or an ask that may apply to something that the line does not show.
    pub(super) rule_of_hidden: Option<&'r Rule>,
    /// True if the command runs in a sandbox that confines its changes to the project, without
    /// network, and the user wants no question in that case.
    isolated: bool,
    /// True if the whole line is known to be read-only.
    only_reads: bool,
}

/// The rules that apply to a unit, in order.
#[derive(Default)]
struct ApplyingRules<'r> {
    matching: Vec<&'r Rule>,
    /// The reason why an allow does not apply to the unit.
    refused: Option<String>,
    /// True if one of the rules is a read-only agent's own rule about this permission.
    is_own: bool,
    /// An ask about a program that the unit may start. It lifts no deny.
    may_ask: Option<&'r Rule>,
    /// Denies of programs that the unit may start, each with the number of matching rules before
    /// it. Such a deny is lifted by a rule that allows the whole command, not by one that asks
    /// about it.
    may_deny: Vec<(usize, &'r Rule)>,
}

/// The verdict of the rules on a unit, without the paths that it uses.
struct RulesVerdict {
    action: Action,
    rule: Option<Rule>,
    reason: Option<String>,
    /// Denied because the agent only reads, and not by a rule.
    is_by_posture: bool,
    /// A rule that asks, if another reason decided.
    displaced: Option<Rule>,
}

impl<'r> CommandRules<'r> {
    pub(super) fn of(
        rules: &'r Rules,
        grants: &'r Rules,
        request: &AccessRequest,
        line: &CommandAnalysis,
        guarantee: SandboxGuarantee,
    ) -> Self {
        Self {
            rules,
            grants,
            about: rules.rules_about(&request.permission),
            granted: grants.rules_about("bash"),
            posture: rules.posture(),
            rule_of_hidden: guarantee.rule_of_hidden(rules),
            isolated: request.is_isolated,
            only_reads: line.is_read_only(),
        }
    }

    pub(super) fn denied_entirely(&self) -> bool {
        self.about
            .catch_all()
            .is_some_and(|rule| rule.action == Action::Deny)
    }

    /// Returns whether a deny is in force for a text that is judged as a whole.
    pub(super) fn is_in_force_for(&self, (at, deny): IndexedRule<'r>, text: &str) -> bool {
        let fitting = self.about.fitting(text).into_iter();
        let later = fitting
            .filter(|(index, _)| *index > at)
            .map(|(_, rule)| rule);
        is_in_force(
            deny,
            later.filter(|rule| {
                rule.action != Action::Deny && wildcard::matches(&rule.pattern, text)
            }),
        )
    }

    /// Returns the reason why the last allow that is spelled as a whole line does not apply to it.
    pub(super) fn allow_that_names_line(&self, text: &str) -> Option<String> {
        let text = text.trim();
        let fitting = self.about.fitting(text).into_iter().rev();
        fitting
            .filter_map(|(_, rule)| Some((rule, reason_against_text(rule, text)?)))
            .map(|(rule, reason)| refusal_by(rule, &reason))
            .next()
    }

    /// Returns a deny that matches a command in the unparsed texts, with that command.
    pub(super) fn deny_in_texts(&self, texts: &[String]) -> Option<(&'r Rule, String)> {
        texts.iter().find_map(|text| {
            unparsed::find_denied(&self.about, text, &|rule, text| {
                self.is_in_force_for(rule, text)
            })
        })
    }

    /// Returns whether the sandbox makes the unknowns about a unit harmless.
    fn is_answered(&self, unit: &CommandUnit, guarantee: SandboxGuarantee) -> bool {
        guarantee.answers(unit) && self.rule_of_hidden_in(unit).is_none()
    }

    /// Returns a rule that may apply to something that a unit does not show.
    fn rule_of_hidden_in(&self, unit: &CommandUnit) -> Option<&'r Rule> {
        if unit.is_opaque_by_variable && unit.minimum.is_none() {
            return None;
        }
        self.rule_of_hidden
    }

    /// Adds to the reason to doubt a unit the rule without which the sandbox would answer it.
    fn with_rule_of_hidden(
        &self,
        reason: &str,
        unit: &CommandUnit,
        guarantee: SandboxGuarantee,
    ) -> String {
        match self.rule_of_hidden_in(unit) {
            Some(rule) if guarantee.answers(unit) => may_apply_to_hidden(reason, rule),
            _ => reason.to_owned(),
        }
    }

    /// Judges a part. `delegate` is the program that runs it outside the sandbox, if one does.
    pub(super) fn judge_unit(
        &self,
        unit: &CommandUnit,
        confinement: Confinement,
        delegate: Option<&str>,
    ) -> UnitVerdict {
        let guarantee = confinement.unknowns;
        let texts = [&unit.normalized, &unit.text]
            .into_iter()
            .chain(&unit.other_spellings);
        let keys = UnitKeys::new(texts.map(String::as_str), &unit.possible_starts);
        let RulesVerdict {
            mut action,
            mut rule,
            mut reason,
            is_by_posture,
            displaced,
        } = self.verdict_of_rules(unit, &keys, guarantee);
        if action == Action::Ask && self.is_granted(unit) {
            action = Action::Allow;
            rule = None;
            reason = Some("you allowed this before".into());
        }
        if action == Action::Ask
            && self.isolated
            && self.reason_to_doubt(unit, &keys, guarantee).is_none()
        {
            action = Action::Allow;
            rule = None;
            reason = Some(ISOLATED.into());
        }
        let mut asked = AskReasons::default();
        if action == Action::Ask {
            asked.add(rule.is_none(), rule.as_ref(), reason.as_ref());
            asked.add(false, displaced.as_ref(), None);
            // A rule that asks makes no unknown certain.
            let doubt = self.reason_to_doubt(unit, &keys, guarantee);
            asked.add(true, None, doubt.as_ref());
        }
        for path_use in &unit.path_uses {
            let request = request_of_use(path_use, unit, self.only_reads);
            let verdict = self.verdict_of_use(&request, unit, confinement);
            if verdict.action >= action.max(Action::Ask) {
                let shown = request.absolute_path.as_ref().unwrap_or(&verdict.pattern);
                let mut use_of_path = wording::describe_path_use(&request.permission, shown);
                if let Some(delegate) = delegate
                    && request.is_temporary
                {
                    use_of_path.push_str(&format!(", and {delegate} runs outside the sandbox"));
                }
                let why = verdict.reason.or(Some(use_of_path));
                if verdict.action == Action::Ask {
                    asked.add(false, verdict.rule.as_ref(), why.as_ref());
                }
                for one in &verdict.further_reasons {
                    asked.add(false, one.rule.as_ref(), one.reason.as_ref());
                }
                if verdict.action > action {
                    action = verdict.action;
                    rule = verdict.rule;
                    reason = why;
                }
            }
        }
        if action < Action::Deny
            && let Some(deny) = self.deny_of_unlocated_path(unit)
        {
            action = Action::Deny;
            rule = Some(deny.clone());
            reason =
                Some("it changes more paths than are examined, one of which a rule denies".into());
        }
        if let Some((minimum, why)) = &unit.minimum
            && *minimum >= action.max(Action::Ask)
            && !(*minimum == Action::Ask && self.is_answered(unit, guarantee))
        {
            let why = Some(self.with_rule_of_hidden(why, unit, guarantee));
            asked.add(true, None, why.as_ref());
            if *minimum > action {
                action = *minimum;
                rule = None;
                reason = why;
            }
        }
        if guarantee != SandboxGuarantee::None {
            asked.replace_unknowns(unit.unconfined_effect.as_ref());
        }
        if action == Action::Ask
            && rule.is_none()
            && guarantee != SandboxGuarantee::None
            && unit.unconfined_effect.is_some()
        {
            reason = unit.unconfined_effect.clone();
        }
        let further_reasons = if action == Action::Ask {
            asked.without(rule.as_ref(), reason.as_ref())
        } else {
            Vec::new()
        };
        UnitVerdict {
            text: unit.text.clone(),
            program: unit.program.clone(),
            layer: unit.layer,
            action,
            rule,
            reason,
            is_by_posture,
            further_reasons,
            is_read_only: unit.is_read_only(),
        }
    }

    /// Judges the request of a use of a path by a unit, in the unit's sandbox.
    fn verdict_of_use(
        &self,
        request: &AccessRequest,
        unit: &CommandUnit,
        confinement: Confinement,
    ) -> Verdict {
        let mut verdict = without_command(self.rules, self.grants, request);
        let is_edit = request.permission == "edit";
        let is_confined = self.isolated && is_edit && request.minimum.is_none();
        if verdict.action == Action::Ask
            && (is_confined || confinement.answers_request(request, verdict.rule.as_ref()))
        {
            verdict.action = Action::Allow;
        }
        // A command in an option may never start: see [`read_only_verdict`].
        if is_edit && self.posture.is_some() && unit.is_conditional && !unit.destroys {
            verdict.action = verdict.action.min(Action::Ask);
        }
        verdict
    }

    /// Returns a rule that denies changing one of the paths that were not located, by its name in
    /// the line.
    fn deny_of_unlocated_path(&self, unit: &CommandUnit) -> Option<&'r Rule> {
        let names = unit
            .unlocated_paths
            .iter()
            .map(|text| text.trim_start_matches("./"));
        let verdicts = names.map(|name| judge(self.rules, "edit", name));
        verdicts
            .filter(|(action, _)| *action == Action::Deny)
            .find_map(|(_, rule)| rule)
    }

    /// Returns whether a deny or an ask applies to a unit, under any of its spellings.
    fn applies(rule: &Rule, unit: &CommandUnit) -> bool {
        // A computed name has no fixed beginning to compare.
        let has_known_name = unit.program.is_some() || unit.opaque.is_none();
        (has_known_name && (Self::fits(rule, &unit.normalized) || Self::fits(rule, &unit.text)))
            || unit
                .other_spellings
                .iter()
                .any(|name| Self::fits(rule, name))
    }

    /// Returns whether a rule applies to a program that the unit may start at one of its words.
    fn may_start_program_of(rule: &Rule, unit: &CommandUnit) -> bool {
        first_word::begins_at(rule, &unit.possible_starts, &|text| Self::fits(rule, text)).is_some()
    }

    fn fits(rule: &Rule, text: &str) -> bool {
        match rule.action {
            Action::Deny => wildcard::matches_folded(&rule.pattern, text),
            _ => wildcard::matches(&rule.pattern, text),
        }
    }

    /// Returns whether a rule could apply once the unit's unknown words are known.
    fn may_apply(rule: &Rule, unit: &CommandUnit) -> bool {
        let may_match =
            |text: &str| text.contains(UNKNOWN) && wildcard::may_match(&rule.pattern, text);
        rule.pattern != "*"
            && (may_match(&unit.normalized)
                || unit.other_spellings.iter().any(|name| may_match(name))
                || first_word::begins_at(rule, &unit.possible_starts, &may_match).is_some())
    }

    /// Returns the reason why an allow does not apply to this unit, or `None` if it applies.
    fn reason_against(rule: &Rule, unit: &CommandUnit) -> Option<String> {
        if unit.opaque.is_some() {
            return unit.opaque.clone();
        }
        if let Some(danger) = unit
            .dangerous_options
            .iter()
            .find(|danger| !rule.pattern.contains(danger.as_str()))
        {
            return Some(format!(
                "{danger} changes what it does, and the rule does not name it"
            ));
        }
        let names_program = |program: &String| {
            program.contains('/') && rule.pattern.split(' ').next() == Some(program)
        };
        if unit.catch_all_only.is_some() {
            return unit.catch_all_only.clone();
        }
        if unit.program.as_ref().is_some_and(names_program) {
            None
        } else {
            unit.untrusted_program.clone()
        }
    }

    /// Returns whether an allow applies to a unit. If only a property of the unit prevents it,
    /// stores the reason in `refused`.
    ///
    /// For a read-only agent, only rules after the one that makes it read-only are its exceptions,
    /// so only their reasons are stored.
    fn allows(
        &self,
        at: usize,
        rule: &Rule,
        unit: &CommandUnit,
        refused: &mut Option<String>,
    ) -> bool {
        let names = wildcard::matches(&rule.pattern, &unit.normalized)
            || written_line::quoted_words(&rule.pattern).is_some_and(|words| words == unit.argv)
            || (unit.catch_all_only.is_none()
                && unit
                    .other_spellings
                    .first()
                    .is_some_and(|name| wildcard::matches(&rule.pattern, name)));
        let hindered = if names {
            Self::reason_against(rule, unit)
        } else {
            reason_against_text(rule, &unit.text)
        };
        if let Some(reason) = &hindered
            && self.posture.is_none_or(|posture| at >= posture)
        {
            *refused = Some(refusal_by(rule, reason));
        }
        names && hindered.is_none()
    }

    /// Returns the rules that apply to a unit.
    fn applying(&self, unit: &CommandUnit, keys: &UnitKeys<'_>) -> ApplyingRules<'r> {
        let mut found = ApplyingRules::default();
        for (at, rule) in self.about.may_apply(keys) {
            let applies = if rule.pattern == "*" {
                true
            } else if rule.action == Action::Allow {
                self.allows(at, rule, unit, &mut found.refused)
            } else if Self::applies(rule, unit) {
                true
            } else if rule.action == Action::Deny {
                let may_deny = Self::may_start_program_of(rule, unit);
                if may_deny {
                    found.may_deny.push((found.matching.len(), rule));
                }
                may_deny
            } else {
                if Self::may_start_program_of(rule, unit) {
                    found.may_ask = Some(rule);
                }
                false
            };
            if applies {
                found.may_ask = found
                    .may_ask
                    .filter(|ask| !names_program_of(rule, ask) && !rule.broader_than(ask));
                found.matching.push(rule);
                found.is_own |=
                    self.posture.is_some_and(|posture| at >= posture) && rule.permission != "*";
            }
        }
        found
    }

    /// Returns the verdict on a unit by the rules about commands.
    fn verdict_of_rules(
        &self,
        unit: &CommandUnit,
        keys: &UnitKeys<'_>,
        guarantee: SandboxGuarantee,
    ) -> RulesVerdict {
        let ApplyingRules {
            matching,
            refused,
            is_own,
            may_ask,
            may_deny,
        } = self.applying(unit, keys);
        let (mut action, mut rule) = decide(&matching);
        let lifts = |deny: &Rule, rule: &&Rule| {
            rule.action == Action::Allow && !rule.broader_than(deny) && names_program_of(rule, deny)
        };
        let in_force = |(at, deny): &&(usize, &Rule)| {
            !matching[*at + 1..].iter().any(|rule| lifts(deny, rule))
        };
        if action < Action::Deny
            && let Some((_, deny)) = may_deny.iter().rev().find(in_force)
        {
            action = Action::Deny;
            rule = Some(*deny);
        }
        if action < Action::Deny && may_ask.is_some() {
            action = Action::Ask;
            rule = may_ask;
        }
        let mut reason = None;
        if self.posture.is_some() && !is_own && action != Action::Deny {
            let (verdict, why) = read_only_verdict(unit);
            action = verdict;
            reason = Some(with_refusal(why, action, refused.as_deref()));
            // Only a built-in catch-all lets commands that read pass without a question.
            let asked = rule.filter(|rule| {
                rule.action == Action::Ask && (rule.pattern != "*" || rule.source != BUILT_IN)
            });
            let is_confined = guarantee.prevents_all_changes(unit)
                && self.reason_to_doubt(unit, keys, guarantee).is_none();
            if is_confined && action == Action::Ask && asked.is_none() {
                return RulesVerdict {
                    action: Action::Allow,
                    rule: None,
                    reason: Some(CONFINED.into()),
                    is_by_posture: false,
                    displaced: None,
                };
            }
            let mut displaced = None;
            if action == Action::Allow && asked.is_some() {
                action = Action::Ask;
                reason = None;
            } else {
                displaced = asked.cloned();
                rule = None;
            }
            // The agent may read, but a word that is unknown yet may name something that is denied.
            if action == Action::Allow
                && let Some(doubt) = self.reason_to_doubt(unit, keys, guarantee)
            {
                action = Action::Ask;
                reason = Some(doubt);
            }
            return RulesVerdict {
                is_by_posture: action == Action::Deny,
                action,
                rule: rule.cloned(),
                reason,
                displaced,
            };
        }
        if action == Action::Ask {
            reason = refused;
        }
        if action == Action::Allow {
            // An allow holds for a command that was analysed, unless it may hide something that is
            // denied.
            let doubt = self.reason_to_doubt(unit, keys, guarantee);
            if doubt.is_some() {
                action = Action::Ask;
                rule = None;
                reason = doubt;
            }
        }
        RulesVerdict {
            action,
            rule: rule.cloned(),
            reason,
            is_by_posture: false,
            displaced: None,
        }
    }

    /// Returns the reason why the unit may run something that a rule denies, or that cannot be
    /// analysed.
    fn reason_to_doubt(
        &self,
        unit: &CommandUnit,
        keys: &UnitKeys<'_>,
        guarantee: SandboxGuarantee,
    ) -> Option<String> {
        if let Some(reason) = &unit.opaque
            && !self.is_answered(unit, guarantee)
        {
            return Some(self.with_rule_of_hidden(reason, unit, guarantee));
        }
        if !self.about.denies_names() {
            return None;
        }
        if let Some(reason) = &unit.may_be_denied {
            return Some(reason.clone());
        }
        let may_deny = |rule: &&Rule| rule.action == Action::Deny && Self::may_apply(rule, unit);
        let once_known = self.about.may_apply_once_known(keys);
        if let Some(deny) = once_known.into_iter().map(|(_, rule)| rule).find(may_deny) {
            return Some(format!(
                "a word that is not known yet could make it what \"{}\" denies",
                deny.pattern
            ));
        }
        if let Some(word) = unit
            .unknown_program_words
            .iter()
            .find(|word| self.about.denies_name(word))
        {
            return Some(format!(
                "it may start {word}, which a rule denies: what it does with its words is not known"
            ));
        }
        // Both as written and without quotes, which may be inside a name. Lower-cased last, because
        // the lower case of a character can depend on its neighbours.
        let without_quotes = |text: &str| text.replace(['\'', '"', '\\'], "");
        let texts = unit
            .foreign_code
            .iter()
            .flat_map(|text| [without_quotes(text).to_lowercase(), text.to_lowercase()]);
        let texts: Vec<String> = texts.collect();
        let mentioned = texts
            .iter()
            .filter_map(|text| self.about.denied_name_in(text))
            .min()?;
        Some(format!(
            "the program text it is given names {mentioned}, which a rule denies"
        ))
    }

    /// Returns whether the user granted the unit.
    ///
    /// A grant is a specific allow. One without a wildcard also covers properties that only the
    /// user could judge, such as a program of the project.
    pub(super) fn is_granted(&self, unit: &CommandUnit) -> bool {
        if unit.opaque.is_some()
            || unit.catch_all_only.is_some()
            || unit.normalized.contains(UNKNOWN)
        {
            return false;
        }
        // A grant of a prefix does not cover effects that the arguments do not show.
        let words: Vec<&str> = unit.normalized.split(' ').collect();
        let is_shown_by_words = unit.may_be_denied.is_none() && unit.foreign_code.is_empty();
        let grants_prefix =
            is_shown_by_words && arity::is_granted_by_beginning(&words, unit.uses_network);
        let run = unit
            .runner
            .as_ref()
            .map(|runner| format!("{runner}{}", unit.normalized));
        let texts = [
            Some(&*unit.normalized),
            unit.only_destination(),
            run.as_deref(),
        ]
        .into_iter()
        .flatten();
        self.granted
            .may_apply(&UnitKeys::new(texts, &[]))
            .into_iter()
            .any(|(_, rule)| {
                let is_exact = rule.pattern == unit.normalized
                    || unit.only_destination() == Some(&*rule.pattern);
                let fits_shape = rule.pattern != "*"
                    && wildcard::matches(&rule.pattern, &unit.normalized)
                    && Self::reason_against(rule, unit).is_none();
                is_exact || grants_prefix && (fits_shape || Self::is_run_as(rule, unit))
            })
    }

    /// Returns whether a grant names a program together with its runner: `uv run pytest *`.
    fn is_run_as(rule: &Rule, unit: &CommandUnit) -> bool {
        let names_runner = |runner: &String| {
            rule.pattern.starts_with(&**runner)
                && wildcard::matches(&rule.pattern, &format!("{runner}{}", unit.normalized))
        };
        unit.untrusted_program.is_some()
            && unit.dangerous_options.is_empty()
            && unit.runner.as_ref().is_some_and(names_runner)
    }
}

/// Returns the access request of a path that a part of a line uses.
pub(super) fn request_of_use(
    path_use: &PathUse,
    unit: &CommandUnit,
    is_line_read_only: bool,
) -> AccessRequest {
    let mut request = AccessRequest::from(path_use.clone());
    // A command may change the directory that it enters or lists.
    // A script that is read may do anything there.
    let may_only_read = request.only_reads && unit.effect != Effect::Unproven;
    request.only_reads = is_line_read_only || may_only_read;
    request
}

/// The reasons to ask about a unit, in the order in which they were found.
#[derive(Default)]
struct AskReasons {
    /// Each with `true` if it is about something unknown, which a more precise reason replaces.
    found: Vec<(bool, AskReason)>,
}

impl AskReasons {
    /// Adds a rule or a reason, unless an earlier one states the same.
    fn add(&mut self, is_unknown: bool, rule: Option<&Rule>, reason: Option<&String>) {
        if rule.is_none() && reason.is_none() {
            return;
        }
        let is_stated = match reason {
            Some(reason) => self
                .found
                .iter()
                .any(|(_, earlier)| states(earlier, reason)),
            None => self
                .found
                .iter()
                .any(|(_, earlier)| earlier.rule.as_ref() == rule),
        };
        if !is_stated {
            let rule = rule.cloned();
            let reason = reason.cloned();
            self.found.push((is_unknown, AskReason { rule, reason }));
        }
    }

    /// Replaces the reasons about unknowns by the reason that is known.
    fn replace_unknowns(&mut self, known: Option<&String>) {
        let Some(known) = known else {
            return;
        };
        let count = self.found.len();
        self.found.retain(|(is_unknown, _)| !is_unknown);
        if self.found.len() < count {
            self.add(false, None, Some(known));
        }
    }

    /// Returns the reasons in addition to the rule and the reason that decided.
    fn without(self, rule: Option<&Rule>, reason: Option<&String>) -> Vec<AskReason> {
        let is_decisive = |one: &AskReason| match reason {
            Some(reason) => states(one, reason),
            None => one.reason.is_none() && one.rule.as_ref() == rule,
        };
        let found = self.found.into_iter().map(|(_, reason)| reason);
        found.filter(|one| !is_decisive(one)).collect()
    }
}

fn states(one: &AskReason, reason: &str) -> bool {
    one.reason
        .as_deref()
        .is_some_and(|stated| stated.contains(reason))
}

/// Describes that a rule does not allow something.
fn refusal_by(rule: &Rule, reason: &str) -> String {
    format!("\"{}\" does not allow it: {reason}", rule.pattern)
}

/// Returns the reason why an allow that is spelled as a command line does not apply to it.
pub(super) fn reason_against_text(rule: &Rule, text: &str) -> Option<String> {
    if rule.action != Action::Allow || !wildcard::matches(&rule.pattern, text) {
        return None;
    }
    written_line::reason_against_line(&rule.pattern).map(str::to_owned)
}

/// Returns whether a rule about a program that starts others names the program that `other` is
/// about, and so may lift it.
fn names_program_of(rule: &Rule, other: &Rule) -> bool {
    let name = first_word::beginning(&other.pattern);
    let is_word_char = |c: char| c.is_alphanumeric() || "_-.".contains(c);
    name.is_empty()
        || rule
            .pattern
            .split(|c| !is_word_char(c))
            .any(|part| part.eq_ignore_ascii_case(name))
}
