//! What a project says about requests to models that needs trust: where they go, with which key, and options that
//! have a provider send the conversation on.

use crate::node::{Node, NodeValue};
use providers::entry::LOCATION_OPTIONS;

/// The parts of a provider that decide where requests go and with which key.
pub(super) fn provider_ways(provider: &Node) -> Vec<Vec<String>> {
    let way = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<String>>();
    let mut ways: Vec<Vec<String>> = ["api", "env", "id", "login", "npm"].into_iter().map(|key| way(&[key])).collect();
    for key in LOCATION_OPTIONS {
        ways.push(way(&["options", key]));
    }
    for model in provider.get("models").map(Node::entries).unwrap_or_default() {
        ways.push(way(&["models", &model.key, "provider"]));
        ways.push(way(&["models", &model.key, "headers"]));
    }
    ways.retain(|way| {
        let way: Vec<&str> = way.iter().map(String::as_str).collect();
        provider.at(&way).is_some()
    });
    ways
}

/// Options of models that do more than tune an answer: they go to the provider as they are, and may have it send the
/// conversation on, to a server or another provider that they name, or run tools of its own.
pub(super) fn option_ways(node: &Node) -> Vec<Vec<String>> {
    let mut places: Vec<Vec<&str>> = Vec::new();
    for agent in node.get("agent").map(Node::entries).unwrap_or_default() {
        places.push(vec!["agent", &agent.key, "options"]);
    }
    for provider in node.get("provider").map(Node::entries).unwrap_or_default() {
        places.push(vec!["provider", &provider.key, "options"]);
        for model in provider.node.get("models").map(Node::entries).unwrap_or_default() {
            let way = ["provider", &provider.key, "models", &model.key];
            places.push([&way[..], &["options"]].concat());
            for variant in model.node.get("variants").map(Node::entries).unwrap_or_default() {
                places.push([&way[..], &["variants", &variant.key]].concat());
            }
        }
    }
    let mut ways = Vec::new();
    for place in places {
        let of_provider = place.len() == 3 && place[0] == "provider";
        for option in node.at(&place).map(Node::entries).unwrap_or_default() {
            let known = of_provider && LOCATION_OPTIONS.contains(&option.key.as_str());
            if !known && !tunes(&option.node) {
                ways.push(place.iter().copied().chain([option.key.as_str()]).map(str::to_owned).collect());
            }
        }
    }
    ways
}

/// Whether an option is made of numbers, switches and plain words. What names a place has dots or slashes, and what
/// names tools or servers is a list.
fn tunes(option: &Node) -> bool {
    const WORD: usize = 64;
    match &option.value {
        NodeValue::Null | NodeValue::Bool(_) | NodeValue::Number(_) => true,
        NodeValue::Text(text) => {
            text.len() <= WORD && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        }
        NodeValue::List(_) => false,
        NodeValue::Map(entries) => entries.iter().all(|entry| tunes(&entry.node)),
    }
}
