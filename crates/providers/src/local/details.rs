//! Reads the details of models ([`ModelDetails`]) from the servers' own APIs. Every field of their
//! answers may be missing.

use serde_json::Value;

use crate::entry::ModelEntry;

/// The details of a model; `None` if the server does not report one.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ModelDetails {
    /// The model's name on the server.
    pub(super) model: String,
    /// The context window that the server uses, in tokens.
    context: Option<u64>,
    /// See [`ModelEntry::has_own_window`].
    has_own_window: bool,
    /// True if the model can call tools.
    tools: Option<bool>,
    /// True if the model accepts images.
    images: Option<bool>,
    /// The efforts of a model that reasons, weakest first; empty if it does not.
    efforts: Option<&'static [&'static str]>,
    /// True if the model can hold a conversation.
    pub(super) is_chat: bool,
}

impl ModelDetails {
    /// Writes the details to a model.
    pub(super) fn apply_to(&self, model: &mut ModelEntry) {
        model.context = self.context.or(model.context);
        model.has_own_window = self.has_own_window;
        model.tool_call = self.tools;
        if let Some(efforts) = self.efforts {
            model.reasoning = Some(!efforts.is_empty());
            let names = efforts.iter().map(|name| (*name).to_owned());
            model.efforts = Some(names.collect());
        }
        if let Some(images) = self.images {
            let kinds = if images {
                &["text", "image"][..]
            } else {
                &["text"]
            };
            model.modalities = Some(kinds.iter().map(|kind| (*kind).to_owned()).collect());
        }
    }
}

/// Returns the texts in the list `name` of an object; `None` if there is no such list.
fn texts<'a>(object: &'a Value, name: &str) -> Option<Vec<&'a str>> {
    let list = object.get(name)?.as_array()?;
    Some(list.iter().filter_map(Value::as_str).collect())
}

/// Returns the list `name` of an object; empty if there is none.
fn entries<'a>(object: &'a Value, name: &str) -> &'a [Value] {
    object
        .get(name)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// The efforts that Ollama accepts for a model with reasoning. With most models, they only turn the
/// reasoning on or off.
const OLLAMA_EFFORTS: &[&str] = &["none", "low", "medium", "high"];

/// Reads Ollama's answers about a model: `shown` from `/api/show`, `loaded` from `/api/ps`. The
/// context window is known if the model is loaded or its parameters set the window; the default
/// depends on the server's memory. A model that Ollama runs on another machine always has its
/// largest window.
pub(super) fn from_ollama(model: &str, shown: &Value, loaded: &Value) -> ModelDetails {
    let capabilities = texts(shown, "capabilities");
    let can = |name: &str| capabilities.as_ref().map(|list| list.contains(&name));
    let running = entries(loaded, "models").iter().find(|running| {
        ["name", "model"]
            .iter()
            .any(|field| running.get(field).and_then(Value::as_str) == Some(model))
    });
    let in_use = running.and_then(|running| running.get("context_length")?.as_u64());
    let parameters = shown
        .get("parameters")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let set = parameters.lines().find_map(|line| {
        let value = line.trim().strip_prefix("num_ctx")?;
        value.trim().parse().ok()
    });
    let info = shown.get("model_info").and_then(Value::as_object);
    let largest = info.and_then(|info| {
        let length = |(name, value): (&String, &Value)| {
            name.ends_with(".context_length")
                .then(|| value.as_u64())
                .flatten()
        };
        info.iter().find_map(length)
    });
    let is_elsewhere = shown.get("remote_host").is_some();
    let elsewhere = if is_elsewhere { largest } else { None };
    let context = in_use.or(elsewhere).or(set);
    ModelDetails {
        model: model.to_owned(),
        context: context
            .map(|context: u64| largest.map_or(context, |largest| context.min(largest)))
            .filter(|context| *context > 0),
        has_own_window: set.is_some() && !is_elsewhere,
        tools: can("tools"),
        images: can("vision"),
        efforts: can("thinking").map(|thinks| if thinks { OLLAMA_EFFORTS } else { &[] }),
        is_chat: can("completion").unwrap_or(true),
    }
}

/// Reads the answer of LM Studio's `/api/v1/models`, or of `/api/v0/models` of older versions. The
/// context window is only known if the model is loaded.
pub(super) fn from_lm_studio(list: &Value) -> Vec<ModelDetails> {
    let text =
        |entry: &Value, name: &str| entry.get(name).and_then(Value::as_str).map(str::to_owned);
    let now = entries(list, "models").iter().filter_map(|entry| {
        let instances = entries(entry, "loaded_instances").iter();
        let can = |name: &str| entry.pointer(&format!("/capabilities/{name}"))?.as_bool();
        Some(ModelDetails {
            model: text(entry, "key")?,
            context: instances
                .filter_map(|instance| instance.pointer("/config/context_length")?.as_u64())
                .min(),
            has_own_window: false,
            tools: can("trained_for_tool_use"),
            images: can("vision"),
            efforts: None,
            is_chat: text(entry, "type").is_none_or(|kind| kind == "llm"),
        })
    });
    let before = entries(list, "data").iter().filter_map(|entry| {
        let kind = text(entry, "type");
        let capabilities = texts(entry, "capabilities");
        Some(ModelDetails {
            model: text(entry, "id")?,
            context: entry.get("loaded_context_length").and_then(Value::as_u64),
            has_own_window: false,
            tools: capabilities.map(|list| list.contains(&"tool_use")),
            images: kind.as_ref().map(|kind| kind == "vlm"),
            efforts: None,
            is_chat: kind.is_none_or(|kind| kind == "llm" || kind == "vlm"),
        })
    });
    now.chain(before).collect()
}

/// Reads the answer of llama.cpp's `/props`, which is about the only model.
pub(super) fn from_llama_cpp(model: &str, properties: &Value) -> ModelDetails {
    let flag = |path: &str| properties.pointer(path).and_then(Value::as_bool);
    // Some templates can write calls in the history, but no definitions of tools, so the second flag
    // is only used if the first one is missing.
    let tools = flag("/chat_template_caps/supports_tools");
    ModelDetails {
        model: model.to_owned(),
        context: properties
            .pointer("/default_generation_settings/n_ctx")
            .and_then(Value::as_u64)
            .filter(|context| *context > 0),
        has_own_window: false,
        tools: tools.or_else(|| flag("/chat_template_caps/supports_tool_calls")),
        images: flag("/modalities/vision"),
        efforts: None,
        is_chat: true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ollama_reports_abilities_and_window() {
        let show = |capabilities: &[&str], parameters: &str| {
            json!({"capabilities": capabilities, "parameters": parameters,
                "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40_960}})
        };
        let tools: &[&str] = &["completion", "tools"];
        let loaded = |context: u64| json!({"models": [{"name": "m", "model": "m", "context_length": context}]});
        // Name, /api/show, /api/ps; window, tools, images, conversation.
        let table = [
            (
                "not loaded",
                show(tools, ""),
                json!({}),
                (None, Some(true), Some(false), true),
            ),
            (
                "set",
                show(tools, "stop \"x\"\nnum_ctx                        8192"),
                json!({}),
                (Some(8192), Some(true), Some(false), true),
            ),
            (
                "loaded",
                show(tools, "num_ctx 8192"),
                loaded(4096),
                (Some(4096), Some(true), Some(false), true),
            ),
            (
                "too large",
                show(tools, "num_ctx 100000"),
                json!({}),
                (Some(40_960), Some(true), Some(false), true),
            ),
            (
                "no tools",
                show(&["completion", "vision"], ""),
                json!({}),
                (None, Some(false), Some(true), true),
            ),
            (
                "embedding",
                show(&["embedding"], ""),
                json!({}),
                (None, Some(false), Some(false), false),
            ),
            ("old server", json!({}), json!({}), (None, None, None, true)),
        ];
        for (name, shown, loaded, (context, tools, images, is_chat)) in table {
            let expected = ModelDetails {
                model: "m".into(),
                context,
                has_own_window: shown["parameters"].to_string().contains("num_ctx"),
                tools,
                images,
                efforts: tools.map(|_| &[][..]),
                is_chat,
            };
            assert_eq!(from_ollama("m", &shown, &loaded), expected, "{name}");
        }
        let mut thinking = ModelEntry::default();
        from_ollama(
            "m",
            &show(&["completion", "tools", "thinking"], ""),
            &json!({}),
        )
        .apply_to(&mut thinking);
        assert_eq!(thinking.reasoning, Some(true));
        assert_eq!(
            thinking.efforts.unwrap_or_default(),
            ["none", "low", "medium", "high"]
        );
        let mut elsewhere = show(tools, "");
        elsewhere["remote_host"] = "https://ollama.com".into();
        assert_eq!(
            from_ollama("m", &elsewhere, &json!({})).context,
            Some(40_960)
        );
    }

    #[test]
    fn lm_studio_reports_abilities_and_window() {
        let now = json!({"models": [
            {"type": "llm", "key": "a", "max_context_length": 131_072, "capabilities": {"vision": false, "trained_for_tool_use": true},
                "loaded_instances": [{"id": "a", "config": {"context_length": 8192}}]},
            {"type": "embedding", "key": "e", "max_context_length": 2048, "loaded_instances": []}]});
        let before = json!({"data": [
            {"id": "a", "type": "llm", "state": "loaded", "max_context_length": 131_072, "loaded_context_length": 8192, "capabilities": ["tool_use"]},
            {"id": "e", "type": "embeddings", "state": "not-loaded", "max_context_length": 2048}]});
        for list in [now, before] {
            let found = from_lm_studio(&list);
            let chat = ModelDetails {
                model: "a".into(),
                context: Some(8192),
                has_own_window: false,
                tools: Some(true),
                images: Some(false),
                efforts: None,
                is_chat: true,
            };
            assert_eq!(found[0], chat, "{list}");
            assert_eq!(
                (found[1].model.as_str(), found[1].is_chat),
                ("e", false),
                "{list}"
            );
        }
    }

    #[test]
    fn llama_cpp_reports_abilities_and_window() {
        let properties = json!({"default_generation_settings": {"n_ctx": 4096}, "modalities": {"vision": false},
            "chat_template_caps": {"supports_tools": false, "supports_tool_calls": false}});
        let expected = ModelDetails {
            model: "m".into(),
            context: Some(4096),
            has_own_window: false,
            tools: Some(false),
            images: Some(false),
            efforts: None,
            is_chat: true,
        };
        assert_eq!(from_llama_cpp("m", &properties), expected);
        let unknown = ModelDetails {
            model: "m".into(),
            is_chat: true,
            ..ModelDetails::default()
        };
        assert_eq!(from_llama_cpp("m", &Value::Null), unknown);
    }
}
