//! The changes of a project's items since the user trusted them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::covered::{CoveredItem, digests};
use super::{Decision, TrustEntry, TrustItem};
use crate::script_inputs::text_with_digest;
use base::text;

/// A difference between a project's items and those that an answer is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustChange {
    /// The item and the kind of its change, for a notice.
    pub subject: String,
    /// The whole change, with the old and the new text of a setting.
    pub line: String,
    /// The old and the new text, if both are known.
    pub texts: Option<ChangedTexts>,
}

/// The old and the new text of a setting or a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedTexts {
    /// The key of the setting, or the file relative to the project.
    pub name: String,
    /// The file; `None` for a setting.
    pub file: Option<PathBuf>,
    pub old: String,
    pub new: String,
}

/// Returns each difference between a project's items and those that the user trusted. Empty if
/// the user did not trust the project, or the items of the answer were not stored.
pub(crate) fn since(entry: &TrustEntry, items: &[TrustItem]) -> Vec<TrustChange> {
    if entry.decision != Decision::Trusted || entry.covered.is_empty() {
        return Vec::new();
    }
    let now: Vec<CoveredItem> = items.iter().map(CoveredItem::of).collect();
    // Several items may have the same key, such as the entries of a list.
    let mut keys: BTreeMap<(&str, &str), Differences<'_>> = BTreeMap::new();
    for old in &entry.covered {
        let differences = keys.entry((&old.kind, &old.key)).or_default();
        let mut current = now.iter().zip(items);
        match current.find(|(new, _)| is_same(old, new)) {
            Some((new, item)) => {
                let files = &item.covered.files;
                differences.files.extend(file_changes(old, new, files));
            }
            None => differences.gone.push(old),
        }
    }
    for (new, item) in now.iter().zip(items) {
        if !entry.covered.iter().any(|old| is_same(old, new)) {
            let differences = keys.entry((&new.kind, &new.key)).or_default();
            differences.added.push((new, item));
        }
    }
    for differences in keys.values_mut() {
        // The setting has changed; the files that it runs may have changed as well.
        if let ([old], [(new, item)]) = (&differences.gone[..], &differences.added[..]) {
            let files = file_changes(old, new, &item.covered.files);
            differences.files.extend(files);
        }
    }
    let mut all: Vec<_> = keys.into_iter().collect();
    all.sort_by_key(|((kind, _), _)| rank(items, kind));
    all.into_iter()
        .flat_map(|((_, key), differences)| differences.lines(key))
        .collect()
}

/// Returns the rank of a kind in lists. One that is gone entirely is no risk.
fn rank(items: &[TrustItem], kind: &str) -> u8 {
    let item = items.iter().find(|item| item.kind.as_str() == kind);
    item.map_or(u8::MAX, |item| item.kind.rank())
}

fn is_same(old: &CoveredItem, new: &CoveredItem) -> bool {
    (&old.kind, &old.key, &old.detail) == (&new.kind, &new.key, &new.detail)
}

/// The differences of the items with one key.
#[derive(Default)]
struct Differences<'a> {
    gone: Vec<&'a CoveredItem>,
    added: Vec<(&'a CoveredItem, &'a TrustItem)>,
    files: Vec<FileChange>,
}

/// A change of a covered file.
struct FileChange {
    description: String,
    texts: Option<ChangedTexts>,
}

impl Differences<'_> {
    fn lines(self, key: &str) -> Vec<TrustChange> {
        let key = text::escaped(key);
        let change = |subject: String, rest: String| TrustChange {
            line: format!("{subject}{rest}"),
            subject,
            texts: None,
        };
        let mut changes = match (self.gone.as_slice(), self.added.as_slice()) {
            ([CoveredItem { detail: old, .. }], [(_, new)]) => vec![TrustChange {
                subject: format!("{key} has changed"),
                line: format!(
                    "{key}: {} → {} {}",
                    text::escaped(old),
                    text::escaped(&new.detail),
                    text::escaped(&new.source())
                ),
                texts: Some(ChangedTexts {
                    name: key.clone(),
                    file: None,
                    old: format!("{old}\n"),
                    new: format!("{}\n", new.detail),
                }),
            }],
            (gone, added) => {
                let gone = gone.iter().map(|old| {
                    change(
                        format!("{key} is gone"),
                        format!(": {}", text::escaped(&old.detail)),
                    )
                });
                let added = added.iter().map(|(covered, new)| TrustChange {
                    subject: format!("{key} is new"),
                    line: format!("new: {}", text::escaped(&new.line())),
                    texts: first_text(covered, new),
                });
                gone.chain(added).collect()
            }
        };
        let files = self.files.into_iter();
        changes.extend(files.map(|file| TrustChange {
            texts: file.texts,
            ..change(format!("{key}: {}", file.description), String::new())
        }));
        changes
    }
}

/// Returns the text of the first file that a new item runs, as an addition.
fn first_text(covered: &CoveredItem, item: &TrustItem) -> Option<ChangedTexts> {
    let (name, digest) = digests(&covered.content).next()?;
    let path = item.covered.files.first()?;
    let (new, current) = text_with_digest(path)?;
    (current == digest).then(|| ChangedTexts {
        name: name.to_owned(),
        file: Some(path.clone()),
        old: String::new(),
        new,
    })
}

/// Describes the differences between the files of an item and those that an answer covers. `files`
/// are the paths of the former.
fn file_changes(old: &CoveredItem, new: &CoveredItem, files: &[PathBuf]) -> Vec<FileChange> {
    let before: BTreeMap<_, _> = digests(&old.content).collect();
    let after: BTreeMap<_, _> = digests(&new.content).collect();
    let paths: BTreeMap<_, _> = digests(&new.content)
        .zip(files)
        .map(|((name, _), path)| (name, path))
        .collect();
    let mut changes = Vec::new();
    for (file, digest) in &before {
        let name = text::escaped(file);
        match after.get(file) {
            None => changes.push(FileChange {
                description: format!("{name} is gone"),
                texts: None,
            }),
            Some(now) if now != digest => {
                let path = paths.get(file).copied();
                let texts = path.and_then(|path| {
                    let old = old.text(digest)?.to_owned();
                    let (new, current) = text_with_digest(path)?;
                    (current == *now).then(|| ChangedTexts {
                        name: (*file).to_owned(),
                        file: Some(path.clone()),
                        old,
                        new,
                    })
                });
                changes.push(FileChange {
                    description: format!("{name} has changed"),
                    texts,
                });
            }
            Some(_) => {}
        }
    }
    let added = after.keys().filter(|file| !before.contains_key(*file));
    changes.extend(added.map(|file| FileChange {
        description: format!("{} is new", text::escaped(file)),
        texts: None,
    }));
    // A package has one digest for all of its files.
    if changes.is_empty() && old.content != new.content {
        changes.push(FileChange {
            description: "its files have changed".into(),
            texts: None,
        });
    }
    changes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::environment::Timestamp;

    use super::super::{TrustKind, TrustStore};
    use super::*;
    use crate::node::{ConfigOrigin, Layer, SourceLocation};
    use crate::script_inputs;

    #[test]
    fn changed_script_is_known_with_its_old_and_new_text() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let script = root.join("check.sh");
        let origin = Arc::new(ConfigOrigin {
            name: "adjutant.json".into(),
            path: None,
            layer: Layer::Project,
            project: true,
        });
        let hook = |detail: &str| TrustItem {
            kind: TrustKind::Hook,
            key: "hook.check".into(),
            detail: detail.into(),
            location: SourceLocation::whole_text(&origin),
            script: None,
            covered: script_inputs::of_command(
                &["sh", "check.sh"],
                std::slice::from_ref(&root),
                &root,
            ),
        };
        std::fs::write(&script, "exit 0\n").unwrap();
        let entry = TrustEntry {
            covered: CoveredItem::of_all(&[hook("runs sh check.sh")]),
            decision: Decision::Trusted,
            ..TrustStore::revoked(Timestamp(0))
        };
        std::fs::write(&script, "exit 2\n").unwrap();
        let texts = |items: &[TrustItem]| -> Vec<(String, String, String)> {
            let texts = since(&entry, items).into_iter();
            texts
                .map(|change| change.texts.unwrap())
                .map(|texts| (texts.name, texts.old, texts.new))
                .collect()
        };
        let of_script = (
            "check.sh".to_owned(),
            "exit 0\n".to_owned(),
            "exit 2\n".to_owned(),
        );
        let of_setting = (
            "hook.check".to_owned(),
            "runs sh check.sh\n".to_owned(),
            "runs sh check.sh -v\n".to_owned(),
        );
        assert_eq!(texts(&[hook("runs sh check.sh")]), vec![of_script.clone()]);
        // A changed setting does not hide the change of the script.
        assert_eq!(
            texts(&[hook("runs sh check.sh -v")]),
            vec![of_setting, of_script]
        );
    }
}
