//! Parts of a project's settings about model requests that need trust: the address, the key, and
//! options that make a provider pass the conversation on.

use crate::node::{Node, NodeValue};
use providers::entry::LOCATION_OPTIONS;

/// Returns the keys of a provider that decide the address of requests and their credentials.
pub(super) fn provider_key_paths(provider: &Node) -> Vec<Vec<String>> {
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

/// Returns the keys of model options that do more than tune an answer. Options go to the provider
/// unchanged, and may make it pass the conversation on to a server or another provider that they
/// name, or run its own tools.
pub(super) fn option_key_paths(node: &Node) -> Vec<Vec<String>> {
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
            if !is_location && !tunes(&option.node) {
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

/// Returns whether an option consists of numbers, switches and plain words. A name of a location has dots
/// or slashes, and names of tools or servers are a list.
fn tunes(option: &Node) -> bool {
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
        NodeValue::Map(entries) => entries.iter().all(|entry| tunes(&entry.node)),
    }
}
