//! Entries of lists: of the project's trust, of the problems of its settings, as a table and as
//! JSON.

use serde_json::{Value, json};

use base::listing::{EntryState, table};
use base::text;
use config::node::SourceLocation;
use config::trust::{Review, TrustItem, TrustKind};
use config::{Problem, ProblemSeverity};

/// Reads the maximum length of a list from the command line.
pub(super) fn limit(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "expected a number from 1 on".to_owned())
}

/// An entry of a list.
pub(super) struct ListEntry {
    pub(super) name: String,
    pub(super) state: EntryState,
    /// Its effect and source, or the reason for its state.
    pub(super) about: String,
}

impl ListEntry {
    /// Creates the entry of something that waits for trust.
    pub(super) fn withheld(name: &str, item: &TrustItem, trust: &Review) -> Self {
        Self {
            name: text::escaped(name),
            state: trust.withheld_state(),
            about: text::escaped(&format!(
                "{} ({})",
                item.shown_detail(),
                item.location.short()
            )),
        }
    }

    /// Creates the entry of something that the settings switch off.
    pub(super) fn off(name: &str, location: &SourceLocation) -> Self {
        Self {
            name: text::escaped(name),
            state: EntryState::Off,
            about: format!("switched off in {}", location.short()),
        }
    }

    /// Creates the entry of something that has an error in its settings.
    pub(super) fn failed(unused: &UnusedEntry) -> Self {
        Self {
            name: text::escaped(&unused.name),
            state: EntryState::Failed,
            about: format!("{} ({})", text::escaped(&unused.why), unused.source),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "name": self.name, "state": self.state.code(), "about": self.about })
    }
}

/// Formats entries as a table.
pub(super) fn list(entries: &[ListEntry]) -> String {
    let rows: Vec<[String; 3]> = entries
        .iter()
        .map(|entry| {
            [
                entry.name.clone(),
                entry.state.as_str().to_owned(),
                entry.about.clone(),
            ]
        })
        .collect();
    table(&["name", "state", "about"], &rows)
}

/// Returns the withheld items of one kind as entries. `section` begins their keys.
pub(super) fn withheld(trust: &Review, kind: TrustKind, section: &str) -> Vec<ListEntry> {
    let name = |item: &TrustItem| {
        let rest = item.key.strip_prefix(section);
        rest.and_then(|rest| rest.strip_prefix('.'))
            .unwrap_or(&item.key)
            .to_owned()
    };
    trust
        .withheld(kind)
        .map(|item| ListEntry::withheld(&name(item), item, trust))
        .collect()
}

/// An entry of the settings that is not used because it is invalid.
pub(super) struct UnusedEntry {
    pub(super) name: String,
    pub(super) why: String,
    pub(super) source: String,
}

/// Returns the unused entries of a section, each with its first problem. A name may contain dots,
/// so the key within the entry begins at one of `inside`. `is_known` returns whether an entry is
/// used.
pub(super) fn unused(
    problems: &[Problem],
    section: &str,
    inside: &[&str],
    is_known: impl Fn(&str) -> bool,
) -> Vec<UnusedEntry> {
    let mut all: Vec<(_, UnusedEntry)> = Vec::new();
    for problem in problems {
        if problem.severity != ProblemSeverity::Error {
            continue;
        }
        let rest = problem
            .key
            .strip_prefix(section)
            .and_then(|rest| rest.strip_prefix('.'));
        let Some(rest) = rest else {
            continue;
        };
        // A bad field of an entry that is used is not an entry of its own.
        let is_field = rest.match_indices('.').any(|(at, _)| is_known(&rest[..at]));
        if is_field {
            continue;
        }
        let end = inside.iter().filter_map(|key| rest.find(key)).min();
        let (name, key) = rest.split_at(end.unwrap_or(rest.len()));
        if is_known(name) || all.iter().any(|(_, entry)| entry.name == name) {
            continue;
        }
        let key = key
            .strip_prefix('.')
            .map(|key| format!("{key}: "))
            .unwrap_or_default();
        let location = (problem.location.origin.name.clone(), problem.location.line);
        let entry = UnusedEntry {
            name: name.to_owned(),
            why: format!("{key}{}", problem.what()),
            source: format!("{}:{}", location.0, location.1),
        };
        all.push((location, entry));
    }
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all.into_iter().map(|(_, entry)| entry).collect()
}

#[cfg(test)]
mod tests {
    use super::limit;

    #[test]
    fn limit_of_a_list_is_positive() {
        assert_eq!(limit("20"), Ok(20));
        for wrong in ["0", "-1", "x", "", "1.5"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
