//! Changes of adjutant's own settings file by commands of the user. Comments, and the order of
//! other keys, remain.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstNode, CstObject, CstObjectProp, CstRootNode};
use serde_json::{Value, json};

use base::environment::Environment;

/// Returns the path of adjutant's own settings file. Of two existing files, the one that is read
/// last.
pub fn path(environment: &Environment) -> PathBuf {
    let folder = &environment.dirs.config;
    let with_comments = folder.join("adjutant.jsonc");
    // A link to nothing is a file, too: it must not be passed over.
    if with_comments.symlink_metadata().is_ok() {
        return with_comments;
    }
    folder.join("adjutant.json")
}

/// Parses the name of a setting: keys joined by full stops. A key that contains one is a JSON
/// string: `provider.local.models."qwen2.5".name`.
///
/// # Errors
/// If a key is empty, or a quotation mark is not closed.
pub fn parse_key(text: &str) -> Result<Vec<String>, String> {
    let invalid = || {
        let quoting = if text.contains("..") {
            "; a shell removes quotation marks, so write it in others: 'permission.read.\".env\"'"
        } else {
            ""
        };
        format!(
            "\"{text}\" is not the name of a setting, such as model or permission.bash.\"*\"{quoting}"
        )
    };
    let mut keys = Vec::new();
    let mut rest = text;
    loop {
        let length = if rest.starts_with('"') {
            let mut strings = serde_json::Deserializer::from_str(rest).into_iter::<String>();
            let key = strings.next().and_then(Result::ok).ok_or_else(invalid)?;
            keys.push(key);
            strings.byte_offset()
        } else {
            let length = rest.find('.').unwrap_or(rest.len());
            keys.push(rest.get(..length).unwrap_or_default().to_owned());
            length
        };
        if keys.last().is_none_or(String::is_empty) {
            return Err(invalid());
        }
        rest = rest.get(length..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(keys);
        }
        rest = rest.strip_prefix('.').ok_or_else(invalid)?;
    }
}

/// Sets a value in a settings file, and creates the objects around it.
///
/// # Errors
/// If the file cannot be read or written, or a value on the way is not an object.
pub fn set(path: &Path, key: &[String], value: &Value) -> Result<(), String> {
    let (last, parents) = key.split_last().ok_or("the name is empty")?;
    change(path, |root| {
        let mut object = root.clone();
        for (at, name) in parents.iter().enumerate() {
            let above = at.checked_sub(1).and_then(|above| parents.get(above));
            if [Some(name), above]
                .into_iter()
                .flatten()
                .any(|key| key == "permission")
            {
                spell_out_rule(&object, name);
            }
            object = object.object_value_or_create(name).ok_or_else(|| {
                let whole = parents.get(..=at).unwrap_or_default().join(".");
                format!(
                    "its \"{whole}\" is not an object; set \"{whole}\" itself, or edit the file"
                )
            })?;
        }
        let is_named = |property: &CstObjectProp| {
            let name = property.name().map(|name| name.decoded_value());
            matches!(name, Some(Ok(name)) if name == *last)
        };
        if object
            .properties()
            .iter()
            .filter(|one| is_named(one))
            .count()
            > 1
        {
            return Err(format!(
                "it has \"{last}\" twice in the same object; remove one of them"
            ));
        }
        match object.get(last) {
            Some(property) => property.set_value(input(value)),
            None => drop(object.append(last, input(value))),
        }
        Ok(())
    })
}

/// Replaces a rule about everything, `"ask"`, by its long form, `{"*": "ask"}`, to which other
/// rules can be added.
fn spell_out_rule(object: &CstObject, name: &str) {
    let Some(property) = object.get(name) else {
        return;
    };
    let action = property.value().and_then(|value| value.as_string_lit());
    if let Some(Ok(action)) = action.map(|action| action.decoded_value()) {
        property.set_value(input(&json!({ "*": action })));
    }
}

/// Removes a value from a settings file. Returns whether the file had it.
///
/// # Errors
/// If the file cannot be read or written.
pub fn unset(path: &Path, key: &[String]) -> Result<bool, String> {
    let Some(text) = read(path)? else {
        return Ok(false);
    };
    let (last, parents) = key.split_last().ok_or("the name is empty")?;
    let has = |root: &CstObject| {
        let object = parents
            .iter()
            .try_fold(root.clone(), |object, name| object.object_value(name));
        object?.get(last)
    };
    let root = parse(&text)?;
    let is_there = root.object_value().is_some_and(|root| has(&root).is_some());
    if !is_there {
        return Ok(false);
    }
    change(path, |root| {
        // A key that is there twice is removed twice.
        while let Some(property) = has(root) {
            property.remove();
        }
        remove_empty_objects(root, parents);
        Ok(())
    })?;
    Ok(true)
}

/// Removes the objects at a path that are empty, the innermost first.
fn remove_empty_objects(root: &CstObject, path: &[String]) {
    for length in (1..=path.len()).rev() {
        let (Some(name), parents) = (path.get(length - 1), path.get(..length - 1)) else {
            return;
        };
        let mut parents = parents.unwrap_or_default().iter();
        let parent = parents.try_fold(root.clone(), |object, name| object.object_value(name));
        let property = parent.and_then(|parent| parent.get(name));
        let inner = property.as_ref().and_then(CstObjectProp::object_value);
        let (Some(property), Some(inner)) = (property, inner) else {
            return;
        };
        let has_comment = inner.children().iter().any(CstNode::is_comment);
        if has_comment || !inner.properties().is_empty() {
            return;
        }
        property.remove();
    }
}

/// Adds an MCP server to a settings file.
///
/// # Errors
/// If the file cannot be read or written, or already has a server of this name.
pub fn add_server(path: &Path, name: &str, entry: &Value) -> Result<(), String> {
    change(path, |root| {
        let servers = root
            .object_value_or_create("mcp")
            .ok_or("its \"mcp\" is not an object")?;
        if servers.get(name).is_some() {
            return Err(format!("it already has a server \"{name}\""));
        }
        servers.append(name, input(entry));
        Ok(())
    })
}

/// Removes an MCP server from a settings file. Returns whether the file had it.
///
/// # Errors
/// If the file cannot be read or written.
pub fn remove_server(path: &Path, name: &str) -> Result<bool, String> {
    let Some(text) = read(path)? else {
        return Ok(false);
    };
    let has = |root: &CstObject| root.object_value("mcp")?.get(name);
    let root = parse(&text)?;
    let is_there = root.object_value().is_some_and(|root| has(&root).is_some());
    if !is_there {
        return Ok(false);
    }
    change(path, |root| {
        if let Some(server) = has(root) {
            server.remove();
        }
        Ok(())
    })?;
    Ok(true)
}

/// Creates the file with an empty object, if it does not exist.
///
/// # Errors
/// If the file cannot be read or written, or is not a JSON object.
pub fn create(path: &Path) -> Result<(), String> {
    match read(path)? {
        Some(_) => Ok(()),
        None => change(path, |_| Ok(())),
    }
}

fn read(path: &Path) -> Result<Option<String>, String> {
    match base::file::read_regular_text(path) {
        // Like a reader of settings, but a changed file loses the mark.
        Ok(text) => Ok(Some(text.trim_start_matches('\u{feff}').to_owned())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            if path.symlink_metadata().is_ok() {
                return Err("it is a link to something that does not exist".into());
            }
            Ok(None)
        }
        Err(e) => Err(e.to_string()),
    }
}

fn parse(text: &str) -> Result<CstRootNode, String> {
    CstRootNode::parse(text, &ParseOptions::default()).map_err(|e| format!("it is not JSON: {e}"))
}

/// Changes the file, which is replaced as a whole. If it is a link, the file behind it is replaced.
fn change(
    path: &Path,
    change: impl FnOnce(&CstObject) -> Result<(), String>,
) -> Result<(), String> {
    let text = read(path)?.unwrap_or_else(|| "{}\n".to_owned());
    let root = parse(&text)?;
    let object = root
        .object_value_or_create()
        .ok_or("it is not a JSON object")?;
    change(&object)?;
    let failed = |e: std::io::Error| e.to_string();
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let folder = target.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(root.to_string().as_bytes())
        .map_err(failed)?;
    if let Ok(earlier) = std::fs::metadata(&target) {
        let permissions = earlier.permissions();
        file.as_file()
            .set_permissions(permissions)
            .map_err(failed)?;
    }
    file.persist(&target).map(drop).map_err(|e| failed(e.error))
}

/// Converts a value for the library.
fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(it) => CstInputValue::Bool(*it),
        Value::Number(it) => CstInputValue::Number(it.to_string()),
        Value::String(it) => CstInputValue::String(it.clone()),
        Value::Array(all) => CstInputValue::Array(all.iter().map(input).collect()),
        Value::Object(all) => CstInputValue::Object(
            all.iter()
                .map(|(name, value)| (name.clone(), input(value)))
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_settings_are_keys_joined_by_full_stops() {
        let table: [(&str, Option<&[&str]>); 9] = [
            ("model", Some(&["model"])),
            ("permission.bash.*", Some(&["permission", "bash", "*"])),
            (r#"a."b.c".d"#, Some(&["a", "b.c", "d"])),
            (r#"a."b\"c""#, Some(&["a", "b\"c"])),
            ("", None),
            ("a..b", None),
            ("a.", None),
            (r#"a."b"c"#, None),
            (r#""a"#, None),
        ];
        for (text, expected) in table {
            let keys = parse_key(text).ok();
            let expected = expected.map(|keys| keys.iter().map(|key| (*key).to_owned()).collect());
            assert_eq!(keys, expected, "{text}");
        }
    }

    #[test]
    fn rule_about_everything_survives_a_new_rule() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("adjutant.json");
        let table = [
            (
                r#"{"permission": "ask"}"#,
                json!({"permission": {"*": "ask", "bash": {"ls *": "allow"}}}),
            ),
            (
                r#"{"permission": {"bash": "ask"}}"#,
                json!({"permission": {"bash": {"*": "ask", "ls *": "allow"}}}),
            ),
            (
                r#"{"permission": {"bash": {"*": "ask"}}}"#,
                json!({"permission": {"bash": {"*": "ask", "ls *": "allow"}}}),
            ),
        ];
        for (before, expected) in table {
            std::fs::write(&file, before).unwrap();
            let key = parse_key("permission.bash.\"ls *\"").unwrap();
            set(&file, &key, &json!("allow")).unwrap();
            let after = std::fs::read_to_string(&file).unwrap();
            let after: Value = serde_json::from_str(&after).unwrap();
            assert_eq!(after, expected, "{before}");
        }
        std::fs::write(&file, r#"{"model": "a/b"}"#).unwrap();
        let other = parse_key("model.x").unwrap();
        assert!(set(&file, &other, &json!("c")).is_err());
    }

    #[test]
    fn files_that_a_change_would_damage_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let key = ["model".to_owned()];
        let link = dir.path().join("adjutant.json");
        std::os::unix::fs::symlink(dir.path().join("gone.json"), &link).unwrap();
        let refused = set(&link, &key, &Value::from("a/b")).unwrap_err();
        assert!(refused.contains("a link to something"), "{refused}");
        assert!(link.symlink_metadata().unwrap().is_symlink());

        let twice = dir.path().join("twice.json");
        let text = r#"{"model": "a/b", "model": "c/d"}"#;
        std::fs::write(&twice, text).unwrap();
        let refused = set(&twice, &key, &Value::from("e/f")).unwrap_err();
        assert!(refused.contains("has \"model\" twice"), "{refused}");
        assert_eq!(std::fs::read_to_string(&twice).unwrap(), text);
    }

    #[test]
    fn changes_keep_comments_links_and_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("dotfiles.json");
        let link = dir.path().join("adjutant.json");
        let before =
            "{\n  // mine\n  \"model\": \"a/b\", // best\n  \"mcp\": {\"x\": {}, \"y\": {}}\n}\n";
        std::fs::write(&real, before).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let key = |text: &str| parse_key(text).unwrap();
        set(&link, &key("model"), &json!("c/d")).unwrap();
        set(&link, &key("permission.edit"), &json!("ask")).unwrap();
        assert_eq!(remove_server(&link, "x"), Ok(true));
        assert_eq!(remove_server(&link, "x"), Ok(false));
        let after = std::fs::read_to_string(&real).unwrap();
        assert!(
            after.contains("// mine\n  \"model\": \"c/d\", // best"),
            "{after}"
        );
        let value = jsonc_parser::parse_to_serde_value::<Value>(&after, &ParseOptions::default());
        let expected = json!({"model": "c/d", "mcp": {"y": {}}, "permission": {"edit": "ask"}});
        assert_eq!(value.unwrap(), expected);
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&real).unwrap());
        assert_eq!(mode & 0o044, 0o044);
        assert!(set(&link, &key("model.x"), &json!(1)).is_err());
        assert_eq!(unset(&link, &key("permission.edit")), Ok(true));
        assert_eq!(unset(&link, &key("permission.edit")), Ok(false));
        assert_eq!(unset(&link, &key("model.x")), Ok(false));
        assert_eq!(unset(&link, &key("model")), Ok(true));
        let after = std::fs::read_to_string(&real).unwrap();
        assert!(after.contains("// mine"), "{after}");
        let value = jsonc_parser::parse_to_serde_value::<Value>(&after, &ParseOptions::default());
        let expected = json!({"mcp": {"y": {}}});
        assert_eq!(value.unwrap(), expected);
    }
}
