//! The settings of a project that affect model requests and need trust: the address, the
//! credentials, and options that may make a provider forward the conversation.

use crate::node::{Node, NodeValue};
use providers::entry::LOCATION_OPTIONS;

/// Returns the paths of the set keys of a provider that determine the address of its requests or
/// their credentials.
pub(super) fn location_key_paths(provider: &Node) -> Vec<Vec<String>> {
    let key_path = |keys: &[&str]| {
        keys.iter()
            .map(|key| (*key).to_owned())
            .collect::<Vec<String>>()
    };
    let mut key_paths: Vec<Vec<String>> = ["api", "env", "id", "login", "npm"]
        .into_iter()
        .map(|key| key_path(&[key]))
        .collect();
    for key in LOCATION_OPTIONS {
        key_paths.push(key_path(&["options", key]));
    }
    for model in provider
        .get("models")
        .map(Node::entries)
        .unwrap_or_default()
    {
        key_paths.push(key_path(&["models", &model.key, "provider"]));
        key_paths.push(key_path(&["models", &model.key, "headers"]));
    }
    key_paths.retain(|key_path| {
        let key_path: Vec<&str> = key_path.iter().map(String::as_str).collect();
        provider.at(&key_path).is_some()
    });
    key_paths
}

/// Returns the paths of model options that may do more than tune an answer. Options are sent to the
/// provider unchanged, and may make it forward the conversation to another server or provider, or
/// run tools of its own.
pub(super) fn risky_option_paths(node: &Node) -> Vec<Vec<String>> {
    let mut option_maps: Vec<Vec<&str>> = Vec::new();
    for agent in node.get("agent").map(Node::entries).unwrap_or_default() {
        option_maps.push(vec!["agent", &agent.key, "options"]);
    }
    for provider in node.get("provider").map(Node::entries).unwrap_or_default() {
        option_maps.push(vec!["provider", &provider.key, "options"]);
        for model in provider
            .node
            .get("models")
            .map(Node::entries)
            .unwrap_or_default()
        {
            let key_path = ["provider", &provider.key, "models", &model.key];
            option_maps.push([&key_path[..], &["options"]].concat());
            for variant in model
                .node
                .get("variants")
                .map(Node::entries)
                .unwrap_or_default()
            {
                option_maps.push([&key_path[..], &["variants", &variant.key]].concat());
            }
        }
    }
    let mut key_paths = Vec::new();
    for option_map in option_maps {
        let is_provider = option_map.len() == 3 && option_map[0] == "provider";
        for option in node.at(&option_map).map(Node::entries).unwrap_or_default() {
            let is_location = is_provider && LOCATION_OPTIONS.contains(&option.key.as_str());
            if !is_location && !only_tunes(&option.node) {
                key_paths.push(
                    option_map
                        .iter()
                        .copied()
                        .chain([option.key.as_str()])
                        .map(str::to_owned)
                        .collect(),
                );
            }
        }
    }
    key_paths
}

/// Returns whether an option consists of numbers, booleans and plain words. A location has dots or
/// slashes, and names of tools or servers are in a list.
fn only_tunes(option: &Node) -> bool {
    const MAX_WORD_BYTES: usize = 64;
    match &option.value {
        NodeValue::Null | NodeValue::Bool(_) | NodeValue::Number(_) => true,
        NodeValue::Text(text) => {
            text.len() <= MAX_WORD_BYTES
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        }
        NodeValue::List(_) => false,
        NodeValue::Map(entries) => entries.iter().all(|entry| only_tunes(&entry.node)),
    }
}
