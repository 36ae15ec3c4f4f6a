//! File changes as operations, with a patch for display.

use std::fmt::Write as _;

use protocol::acp::v2;

use transcript::Change;

pub(super) fn diff(changes: &[&Change]) -> v2::Diff {
    let mut patch = String::new();
    let mut operations = Vec::new();
    // The parts of one file are consecutive.
    for parts in changes
        .chunk_by(|one, next| one.part.is_some() && next.part.is_some() && one.path == next.path)
    {
        section(&mut patch, parts);
        operations.extend(parts.first().map(|change| operation(change)));
    }
    v2::Diff::patch(patch, operations)
}

fn operation(change: &Change) -> v2::DiffChange {
    let path = change.path.as_str();
    let operation = match &change.old {
        _ if change.deleted => v2::DiffChange::delete(path),
        None => v2::DiffChange::add(path),
        Some(_) => v2::DiffChange::modify(path),
    };
    operation.file_type(v2::DiffFileType::Text)
}

/// Writes the section of one file as `git diff` does, except that the path is absolute.
fn section(patch: &mut String, parts: &[&Change]) {
    let Some(change) = parts.first() else { return };
    let path = quoted(&change.path);
    let (was, is, mode) = match &change.old {
        _ if change.deleted => (path.as_str(), "/dev/null", "deleted file mode 100644\n"),
        None => ("/dev/null", path.as_str(), "new file mode 100644\n"),
        Some(_) => (path.as_str(), path.as_str(), ""),
    };
    let hunks: String = parts
        .iter()
        .map(|part| part.lines().unified(None))
        .collect();
    // Writing to a string cannot fail.
    write!(patch, "diff --git {path} {path}\n{mode}").ok();
    if !hunks.is_empty() {
        write!(patch, "--- {was}\n+++ {is}\n{hunks}").ok();
    }
}

/// Returns a path as git writes it: quoted if it contains a character that could be misread.
fn quoted(path: &str) -> String {
    if path
        .bytes()
        .all(|b| (0x20..0x7f).contains(&b) && b != b'"' && b != b'\\')
    {
        return path.to_owned();
    }
    let mut out = String::from("\"");
    for b in path.bytes() {
        match b {
            b'"' | b'\\' => out.extend(['\\', char::from(b)]),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            0x20..0x7f => out.push(char::from(b)),
            _ => drop(write!(out, "\\{b:03o}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, old: Option<&str>, new: &str) -> Change {
        Change {
            path: path.into(),
            old: old.map(Into::into),
            new: new.into(),
            deleted: false,
            part: None,
        }
    }

    #[test]
    fn patch_is_in_git_format_with_absolute_paths() {
        let all = [
            change("/w/a", Some("x\ny\n"), "x\nz\n"),
            change("/w/new", None, "n\n"),
            Change {
                deleted: true,
                ..change("/w/\"ö", Some("gone\n"), "")
            },
            change("/w/emptied", Some("gone\n"), ""),
            change("/w/empty", None, ""),
            Change {
                deleted: true,
                ..change("/w/no-text", None, "")
            },
        ];
        let diff = diff(&all.iter().collect::<Vec<_>>());
        let json = serde_json::to_value(&diff).unwrap();
        let names: Vec<String> = json["changes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| format!("{} {}", c["operation"], c["path"]))
            .collect();
        assert_eq!(
            names,
            [
                "\"modify\" \"/w/a\"",
                "\"add\" \"/w/new\"",
                "\"delete\" \"/w/\\\"ö\"",
                "\"modify\" \"/w/emptied\"",
                "\"add\" \"/w/empty\"",
                "\"delete\" \"/w/no-text\""
            ]
        );
        assert_eq!(
            json["patch"]["text"],
            "diff --git /w/a /w/a\n--- /w/a\n+++ /w/a\n@@ -1,2 +1,2 @@\n x\n-y\n+z\n\
             diff --git /w/new /w/new\nnew file mode 100644\n--- /dev/null\n+++ /w/new\n@@ -0,0 +1 @@\n+n\n\
             diff --git \"/w/\\\"\\303\\266\" \"/w/\\\"\\303\\266\"\ndeleted file mode 100644\n\
             --- \"/w/\\\"\\303\\266\"\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n\
             diff --git /w/emptied /w/emptied\n--- /w/emptied\n+++ /w/emptied\n@@ -1 +0,0 @@\n-gone\n\
             diff --git /w/empty /w/empty\nnew file mode 100644\n\
             diff --git /w/no-text /w/no-text\ndeleted file mode 100644\n"
        );
    }
}
