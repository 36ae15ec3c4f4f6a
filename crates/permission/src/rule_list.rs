//! [`Rules`], an ordered list of permission rules. Of the rules that match, the last one decides.
//!
//! Agents have most of their rules in common. So a list consists of pieces that several lists
//! share, and each piece builds its index ([`RuleIndex`]) once.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::rule_entry::{BUILT_IN, POSTURE};
use super::rule_index::{RuleIndex, RulesAbout};
use super::{Action, Rule};

/// Lists up to this length are copied when they are joined, so that no list consists of tiny
/// pieces.
const MIN_PIECE: usize = 64;

/// An ordered list of rules; later ones win. See [`crate::evaluate`](mod@crate::evaluate).
#[derive(Debug, Clone, Default)]
pub struct Rules {
    pieces: Vec<Arc<RulePiece>>,
}

/// Consecutive rules with their index.
#[derive(Debug, Default)]
struct RulePiece {
    rules: Vec<Rule>,
    index: RuleIndex,
}

impl Rules {
    pub fn built_in(rules: &[(&str, &str, Action)]) -> Self {
        let rule = |(permission, pattern, action): &(&str, &str, Action)| Rule {
            permission: (*permission).into(),
            pattern: (*pattern).into(),
            action: *action,
            source: BUILT_IN.into(),
        };
        rules.iter().map(rule).collect()
    }

    /// Returns the rules of an agent with a read-only shell: see [`POSTURE`].
    pub fn read_only() -> Self {
        Self::built_in(&[(POSTURE.0, POSTURE.1, Action::Deny)])
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Rule> + Clone {
        self.pieces.iter().flat_map(|piece| piece.rules.iter())
    }

    /// Returns whether both lists consist of the same pieces. Equal lists that were made separately
    /// may count as different.
    pub fn is_same(&self, other: &Self) -> bool {
        self.pieces.len() == other.pieces.len()
            && std::iter::zip(&self.pieces, &other.pieces)
                .all(|(one, other)| Arc::ptr_eq(one, other))
    }

    pub fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.rules.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns these rules followed by `later`.
    #[must_use]
    pub fn then(mut self, later: &Self) -> Self {
        for piece in &later.pieces {
            match self.pieces.last_mut() {
                Some(last) if last.rules.len() + piece.rules.len() <= MIN_PIECE => {
                    let rules = last.rules.iter().chain(&piece.rules).cloned().collect();
                    *last = Arc::new(RulePiece {
                        rules,
                        index: RuleIndex::default(),
                    });
                }
                _ => self.pieces.push(piece.clone()),
            }
        }
        self
    }

    /// Returns whether everything is denied for a permission, so that its tools need not be shown
    /// to the model: the last rule for it has the pattern `*` and denies.
    pub fn hides(&self, permission: &str) -> bool {
        self.last_about(permission)
            .is_some_and(|(_, rule)| rule.pattern == "*" && rule.action == Action::Deny)
    }

    /// Returns the last rule about a permission, with its position in the list.
    pub fn last_about(&self, permission: &str) -> Option<(usize, &Rule)> {
        let mut end = self.len();
        for piece in self.pieces.iter().rev() {
            end -= piece.rules.len();
            let last = piece.index.last_about(&piece.rules, permission);
            if let Some(found) = last.and_then(|at| Some((end + at, piece.rules.get(at)?))) {
                return Some(found);
            }
        }
        None
    }

    /// Returns whether a rule is in the list, whatever its source.
    pub fn has(&self, rule: &Rule) -> bool {
        let is_same_rule = |other: &Rule| {
            (&other.permission, &other.pattern, other.action)
                == (&rule.permission, &rule.pattern, rule.action)
        };
        self.rules_about(&rule.permission)
            .fitting(&rule.pattern)
            .into_iter()
            .any(|(_, other)| is_same_rule(other))
    }

    /// Returns the rules about a permission.
    pub(super) fn rules_about(&self, permission: &str) -> RulesAbout<'_> {
        let mut about = RulesAbout::default();
        let mut offset = 0;
        for piece in &self.pieces {
            about.add(
                offset,
                &piece.rules,
                piece.index.table(&piece.rules, permission),
            );
            offset += piece.rules.len();
        }
        about
    }

    /// Returns the position of the rule that makes the agent read-only; see [`POSTURE`].
    pub(super) fn posture(&self) -> Option<usize> {
        let mut posture = None;
        let mut offset = 0;
        for piece in &self.pieces {
            if let Some((at, denies)) = piece.index.posture(&piece.rules) {
                posture = denies.then_some(offset + at);
            }
            offset += piece.rules.len();
        }
        posture
    }

    /// Returns a rule from the settings that asks about or denies something that a command line may
    /// do without showing it. With `edits`, rules about changes count as well.
    pub(super) fn restriction_of_hidden(&self, edits: bool) -> Option<&Rule> {
        self.pieces
            .iter()
            .find_map(|piece| piece.index.restriction_of_hidden(&piece.rules, edits))
    }
}

impl Extend<Rule> for Rules {
    fn extend<T: IntoIterator<Item = Rule>>(&mut self, later: T) {
        let mut later = later.into_iter().peekable();
        if later.peek().is_none() {
            return;
        }
        match self.pieces.last_mut().and_then(Arc::get_mut) {
            Some(piece) => {
                piece.rules.extend(later);
                piece.index = RuleIndex::default();
            }
            None => *self = std::mem::take(self).then(&later.collect()),
        }
    }
}

impl FromIterator<Rule> for Rules {
    fn from_iter<T: IntoIterator<Item = Rule>>(rules: T) -> Self {
        Self::from(rules.into_iter().collect::<Vec<_>>())
    }
}

impl From<Vec<Rule>> for Rules {
    fn from(rules: Vec<Rule>) -> Self {
        let piece = (!rules.is_empty()).then(|| {
            Arc::new(RulePiece {
                rules,
                index: RuleIndex::default(),
            })
        });
        Self {
            pieces: piece.into_iter().collect(),
        }
    }
}

impl PartialEq for Rules {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Rules {}

impl Serialize for Rules {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Rules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
impl Rules {
    /// Returns rules about one permission that are not built in.
    pub(crate) fn written(permission: &str, rules: &[(&str, Action)]) -> Self {
        let rule = |(pattern, action): &(&str, Action)| Rule {
            permission: permission.into(),
            pattern: (*pattern).into(),
            action: *action,
            source: "test".into(),
        };
        rules.iter().map(rule).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(from: usize, count: usize) -> Rules {
        let rule = |at: usize| Rule {
            permission: "bash".into(),
            pattern: at.to_string(),
            action: Action::Allow,
            source: String::new(),
        };
        (from..from + count).map(rule).collect()
    }

    /// Rules keep their order however a list is joined, and long pieces are not copied.
    #[test]
    fn joined_lists_keep_order_and_share_pieces() {
        let long = numbered(0, 1_000);
        let mut rules = long.clone().then(&numbered(1_000, 3));
        rules.extend(numbered(1_003, 2).iter().cloned());
        rules = rules.then(&numbered(1_005, 500)).then(&Rules::default());
        assert_eq!(rules, numbered(0, 1_505));
        assert_eq!((rules.len(), rules.pieces.len()), (1_505, 3));
        assert!(Arc::ptr_eq(&rules.pieces[0], &long.pieces[0]));
        assert_eq!(
            rules
                .last_about("bash")
                .map(|(at, rule)| (at, &*rule.pattern)),
            Some((1_504, "1504"))
        );
        assert_eq!(long.len(), 1_000);
        let many_small =
            (0..1_000).fold(Rules::default(), |rules, at| rules.then(&numbered(at, 1)));
        assert!(
            many_small == long && many_small.pieces.len() < 20,
            "{}",
            many_small.pieces.len()
        );
    }
}
