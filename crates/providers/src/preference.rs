//! The order of preference among models ([`rank`]), for users who did not choose one: as an engineer
//! would choose a model for work on code, judging by the catalogue and the model's name.

use super::{Model, local};

/// Families of models that are good at work with tools, the best last.
const FAMILIES_BY_RANK: [&str; 18] = [
    "llama-",
    "gpt-oss-120b",
    "command-a",
    "nova-pro",
    "mistral-large",
    "mistral-medium",
    "devstral",
    "grok-",
    "minimax-m",
    "deepseek-v",
    "qwen3",
    "qwen3-coder",
    "glm-",
    "kimi-k",
    "gemini-2-5-pro",
    "gemini-3",
    "gpt-5",
    "claude-sonnet",
];

/// Providers that made the models they offer. Users with the keys of a maker and of a gateway use
/// the gateway for models that the maker does not have, so the maker's models are preferred.
pub(crate) const MODEL_MAKERS: [&str; 10] = [
    "anthropic",
    "deepseek",
    "google",
    "minimax",
    "mistral",
    "moonshotai",
    "openai",
    "xai",
    "zai",
    "zhipuai",
];

/// Words in the names of models that are not made for conversations.
const OTHER_PURPOSE_NAMES: NameParts = NameParts {
    words: &["image", "tts", "realtime", "search", "ocr", "omni", "veo"],
    parts: &[
        "imagen",
        "audio",
        "voice",
        "voxtral",
        "whisper",
        "transcribe",
        "embed",
        "rerank",
        "guard",
        "moderation",
        "safety",
        "research",
        "paddleocr",
        "translat",
        "lyria",
        "robotics",
        "computer-use",
    ],
};

/// Words in the names of models that may change or vanish.
const PREVIEW_NAMES: NameParts = NameParts {
    words: &["exp", "alpha", "beta"],
    parts: &["preview", "experimental"],
};

/// Words in the names of the smaller models of a family, and of special versions.
const SMALLER_MODEL_NAMES: NameParts = NameParts {
    words: &[
        "nano", "mini", "lite", "small", "flash", "haiku", "fast", "turbo", "air", "flashx",
        "airx", "turbos", "free", "spark", "luna", "eap", "codex", "1b", "3b", "4b", "7b", "8b",
        "9b", "14b",
    ],
    parts: &["instant", "highspeed", "distill", "big-pickle", "ministral"],
};

/// Words that occur in the names of models.
struct NameParts {
    /// Short words, which also occur inside of others: they must be a whole word of the name.
    words: &'static [&'static str],
    /// Words that may be anywhere in a name.
    parts: &'static [&'static str],
}

impl NameParts {
    /// True if one of the words occurs in a model's name, which is in lower case.
    fn occur_in(&self, name: &str) -> bool {
        let mut words = name.split(|c: char| !c.is_alphanumeric());
        // A digit at the end is a version: `veo3`.
        let is_known = |word: &str| {
            let plain = word.trim_end_matches(|c: char| c.is_ascii_digit());
            self.words.contains(&word) || self.words.contains(&plain)
        };
        words.any(is_known) || self.parts.iter().any(|part| name.contains(part))
    }
}

/// The smallest context window of a preferred model, in tokens.
const MIN_CONTEXT_TOKENS: u64 = 64_000;

/// Returns the rank of a model; higher is better. `release_date` may be empty.
pub(super) fn rank(model: &Model, release_date: &str) -> impl Ord + use<> {
    let key = model.id.model.to_lowercase().replace(['.', '_'], "-");
    let name = key.rsplit('/').next().unwrap_or_default();
    let is_large_enough = has_server_window(model)
        || model
            .context
            .is_none_or(|window| window >= MIN_CONTEXT_TOKENS);
    let is_able = model.tools && is_large_enough && !OTHER_PURPOSE_NAMES.occur_in(name);
    let is_gpt = name.contains("gpt");
    // `chat` names the smaller models of OpenAI, but the main models of others: `deepseek-chat`.
    let is_smaller = SMALLER_MODEL_NAMES.occur_in(name)
        || is_gpt && (name.contains("-pro") || name.contains("chat"));
    let family = FAMILIES_BY_RANK
        .iter()
        .rposition(|family| name.contains(family))
        .map_or(0, |at| at + 1);
    let price = model
        .price
        .as_ref()
        .map_or(f64::MAX, |price| price.base.input + price.base.output);
    (
        is_able,
        !is_smaller,
        !PREVIEW_NAMES.occur_in(name),
        MODEL_MAKERS.contains(&model.id.provider.as_str()),
        family,
        release_date.to_owned(),
        name.contains("latest"),
        std::cmp::Reverse(model.id.model.len()),
        std::cmp::Reverse(microdollars(price)),
        model.id.model.clone(),
    )
}

/// True if a server on this machine determines the context window of a model. Such a window is only
/// known while the model is loaded, and every model of the server has the same one. It must not
/// change the order: otherwise the default model would depend on the model that was used last.
fn has_server_window(model: &Model) -> bool {
    local::is_known(&model.id.provider) && !model.has_own_window
}

/// Converts a price in US dollars to an integer, which can be ordered.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates, which is enough for an order"
)]
fn microdollars(price: f64) -> u64 {
    (price * 1e6) as u64
}

#[cfg(test)]
mod tests {
    use transcript::ModelRef;

    use super::*;

    #[test]
    fn window_of_local_server_does_not_change_the_order() {
        let model = |provider: &str, name: &str, context, has_own_window| Model {
            context,
            has_own_window,
            tools: true,
            ..Model::unknown(ModelRef {
                provider: provider.into(),
                model: name.into(),
                effort: None,
            })
        };
        // Provider, window of the better model, true if the model itself sets it; true if the better one is first.
        let table = [
            ("ollama", None, false, true),
            ("ollama", Some(4096), false, true),
            ("ollama", Some(4096), true, false),
            ("lmstudio", Some(4096), false, true),
            ("elsewhere", Some(4096), false, false),
        ];
        for (provider, context, has_own_window, is_first) in table {
            let better = model(provider, "qwen3-coder:30b", context, has_own_window);
            let other = model(provider, "llama3.2:70b", None, false);
            assert_eq!(
                rank(&better, "") > rank(&other, ""),
                is_first,
                "{provider}, {context:?}, {has_own_window}"
            );
        }
    }

    #[test]
    fn short_words_do_not_count_inside_others() {
        let table = [
            ("deepseek-chat", false, false, false),
            ("gemini-3-pro", false, false, false),
            ("minimax-m2", false, false, false),
            ("claire-70b", false, false, false),
            ("elite-fastener", false, false, false),
            ("titan-text-express", false, false, false),
            ("alphacode", false, false, false),
            ("gpt-5-mini", false, false, true),
            ("gemini-3-flash-lite", false, false, true),
            ("grok-4-fast", false, false, true),
            ("qwen3:4b", false, false, true),
            ("ministral-latest", false, false, true),
            ("gemini-2-0-flash-exp", false, true, true),
            ("gpt-image-1", true, false, false),
            ("veo3", true, false, false),
            ("nomic-embed-text", true, false, false),
            ("embeddinggemma", true, false, false),
            ("llama-guard-4", true, false, false),
        ];
        for (name, other, early, smaller) in table {
            let found = (
                OTHER_PURPOSE_NAMES.occur_in(name),
                PREVIEW_NAMES.occur_in(name),
                SMALLER_MODEL_NAMES.occur_in(name),
            );
            assert_eq!(found, (other, early, smaller), "{name}");
        }
    }
}
