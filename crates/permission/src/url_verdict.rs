//! Judges a fetch of an address by the rules and by its destination, for `permissions check` and
//! for the examples in settings.

use super::url::Address;
use super::{Action, Rules, evaluate};

/// The result of judging an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UrlVerdict {
    /// The verdict of the rules and the destination, with the reason.
    Judged(Action, String),
    /// The reason why the text is not a web address.
    Refused(String),
}

/// Judges an address without resolving names. `secrets` and `private` are as for
/// [`Address::access_request`].
pub fn judge_url(rules: &Rules, text: &str, secrets: &[String], private: &[String]) -> UrlVerdict {
    let address = match Address::read(text) {
        Ok(address) => address,
        Err(reason) => return UrlVerdict::Refused(reason),
    };
    let verdict = evaluate(
        rules,
        &Rules::default(),
        &address.access_request(secrets, private),
    );
    let reason = verdict.reason.unwrap_or_else(|| match verdict.rule {
        Some(rule) if rule.pattern == "*" => format!("the default for {}", address.host),
        Some(rule) => format!("\"{}\" names {}", rule.pattern, address.host),
        None => format!("{} is not named by a rule", address.host),
    });
    UrlVerdict::Judged(verdict.action, reason)
}
