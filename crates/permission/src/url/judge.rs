//! The verdict on an address, by the rules and by where it leads.

use super::Address;
use crate::{Action, Rules, evaluate};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UrlVerdict {
    /// Judged by rules and by where it leads.
    Judged(Action, String),
    /// No web address at all: why.
    Refused(String),
}

/// Judges an address before anything is resolved. `secrets` and `private` as for [`Address::need`].
pub fn judge_url(rules: &Rules, text: &str, secrets: &[String], private: &[String]) -> UrlVerdict {
    let address = match Address::read(text) {
        Ok(address) => address,
        Err(reason) => return UrlVerdict::Refused(reason),
    };
    let verdict = evaluate(rules, &Rules::default(), &address.need(secrets, private));
    let reason = verdict.reason.unwrap_or_else(|| match verdict.rule {
        Some(rule) if rule.pattern == "*" => format!("the default for {}", address.host),
        Some(rule) => format!("\"{}\" names {}", rule.pattern, address.host),
        None => format!("{} is not named by a rule", address.host),
    });
    UrlVerdict::Judged(verdict.action, reason)
}
