//! The access requests of uses of paths, and the patterns that "always" would grant.

use std::path::Path;

use serde_json::{Map, Value};

use super::locate::Located;
use super::{Access, AccessRequest, OutsidePath, PathUse, RequestEffect};

impl Located {
    /// Returns the access requests that have to be allowed before the path is used: first
    /// `external_directory` if it lies outside the project, then `read` or `edit`.
    pub fn requests(&self, access: Access) -> Vec<AccessRequest> {
        self.uses(access)
            .into_iter()
            .map(AccessRequest::from)
            .collect()
    }
}

impl From<PathUse> for AccessRequest {
    fn from(path_use: PathUse) -> Self {
        let (always, why_not_always) = match always(&path_use) {
            Ok(always) => (always.into_iter().collect(), None),
            Err(reason) => (vec![], Some(reason)),
        };
        Self {
            permission: path_use.permission.to_owned(),
            patterns: path_use.patterns,
            absolute_path: path_use.absolute_path,
            only_reads: path_use.only_reads,
            always,
            why_not_always,
            minimum: path_use.minimum,
            effect: if path_use.changes_project {
                RequestEffect::ChangesProject
            } else {
                RequestEffect::Stated
            },
            is_temporary: path_use.is_temporary,
            is_conditional: path_use.is_conditional,
            file: path_use.file,
            metadata: path_use.outside.as_ref().map(metadata).unwrap_or_default(),
            ..Self::default()
        }
    }
}

/// Returns the pattern that "always" would grant for a use, if there is one.
///
/// # Errors
/// The reason why "always" is not offered, if it is shown with the question.
fn always(path_use: &PathUse) -> Result<Option<String>, String> {
    let [pattern] = &path_use.patterns[..] else {
        return Ok(None);
    };
    if !path_use.names_path {
        return Ok(None);
    }
    if let Some(OutsidePath { folder, .. }) = &path_use.outside {
        if folder.parent().is_none() {
            return Err("it would allow the whole file system".to_owned());
        }
        let is_pattern_of_others = folder.to_string_lossy().contains(['*', '?']);
        return Ok((!is_pattern_of_others).then(|| pattern.clone()));
    }
    // A change with a minimum verdict is asked about every time, and a name with wildcards is no
    // pattern for itself.
    let is_asked_each_time = path_use.minimum.is_some() && path_use.permission != "read";
    let is_granted = !is_asked_each_time && !pattern.contains(['*', '?']);
    Ok(is_granted.then(|| pattern.clone()))
}

/// Returns the facts on leaving the project that the editor shows.
fn metadata(outside: &OutsidePath) -> Map<String, Value> {
    let shown = |path: &Path| Value::String(path.display().to_string());
    Map::from_iter([
        ("filepath".to_owned(), shown(&outside.path)),
        ("parentDir".to_owned(), shown(&outside.folder)),
    ])
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use crate::Action;

    #[test]
    fn always_is_offered_for_paths_that_are_named() {
        let named = |permission, pattern: &str| PathUse {
            names_path: true,
            ..PathUse::new(permission, pattern)
        };
        let floored = |path_use| PathUse {
            minimum: Some((Action::Ask, "it is a secret".to_owned())),
            ..path_use
        };
        let outside = |folder: &str, pattern| PathUse {
            outside: Some(OutsidePath {
                path: Path::new(folder).join("x"),
                folder: folder.into(),
            }),
            ..named("external_directory", pattern)
        };
        let whole_disk = "it would allow the whole file system";
        // The use, the patterns that "always" grants, and the reason against it.
        let table: [(PathUse, &[&str], Option<&str>); 9] = [
            (named("read", "a.txt"), &["a.txt"], None),
            (named("edit", "a.txt"), &["a.txt"], None),
            (floored(named("read", ".env")), &[".env"], None),
            (floored(named("edit", ".env")), &[], None),
            (named("edit", "a*"), &[], None),
            (PathUse::new("edit", "link"), &[], None),
            (outside("/etc", "/etc/*"), &["/etc/*"], None),
            (outside("/a?", "/a?/*"), &[], None),
            (outside("/", "/*"), &[], Some(whole_disk)),
        ];
        for (path_use, always, reason) in table {
            let shown = format!("{path_use:?}");
            let request = AccessRequest::from(path_use);
            assert_eq!(request.always, always, "{shown}");
            assert_eq!(request.why_not_always.as_deref(), reason, "{shown}");
        }
    }
}
