//! The order of preference among models, for users who did not choose one: what an engineer would
//! choose for work on code, as far as the catalogue and the name tell.

use super::Model;

/// Families of models that are good at work with tools, the best last.
const FAMILIES: [&str; 18] = [
    "llama-",
    "gemini-2-5-pro",
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
    "gemini-3",
    "gpt-5",
    "claude-sonnet",
];

/// Parts of the names of models that are for something else.
const OTHER_PURPOSES: [&str; 22] = [
    "image",
    "audio",
    "voice",
    "voxtral",
    "tts",
    "realtime",
    "transcribe",
    "embed",
    "rerank",
    "guard",
    "moderation",
    "safety",
    "search",
    "research",
    "ocr",
    "translat",
    "omni",
    "veo",
    "imagen",
    "lyria",
    "robotics",
    "computer-use",
];

/// Parts of the names of models that may change or vanish.
const EARLY: [&str; 5] = ["preview", "-exp", "alpha", "beta", "experimental"];

/// Parts of the names of the smaller models of a family, and of special versions.
const SMALLER: [&str; 27] = [
    "nano",
    "mini",
    "lite",
    "small",
    "flash",
    "haiku",
    "chat",
    "instant",
    "fast",
    "turbo",
    "air",
    "highspeed",
    "-1b",
    "-3b",
    "-4b",
    "-7b",
    "-8b",
    "-9b",
    "-14b",
    ":free",
    "-free",
    "distill",
    "spark",
    "luna",
    "eap",
    "codex",
    "big-pickle",
];

/// The smallest context window for work, in tokens.
const ENOUGH_CONTEXT: u64 = 64_000;

/// Returns the rank of a model; higher is better. `released` is its date, or empty.
pub(super) fn rank(model: &Model, released: &str) -> impl Ord + use<> {
    let key = model.id.model.to_lowercase().replace(['.', '_'], "-");
    let name = key.rsplit('/').next().unwrap_or_default();
    // These names contain one of the words.
    let plain = name.replace("gemini", "").replace("minimax", "");
    let has = |words: &[&str]| words.iter().any(|word| plain.contains(word));
    let is_large_enough = model.context.is_none_or(|window| window >= ENOUGH_CONTEXT);
    let is_able = model.tools && is_large_enough && !has(&OTHER_PURPOSES);
    let is_smaller = has(&SMALLER) || name.contains("gpt") && name.contains("-pro");
    let family = FAMILIES
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
        !has(&EARLY),
        family,
        released.to_owned(),
        name.contains("latest"),
        std::cmp::Reverse(model.id.model.len()),
        std::cmp::Reverse(microdollars(price)),
        model.id.model.clone(),
    )
}

/// Converts a price to a number that can be ordered.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates, which is enough for an order"
)]
fn microdollars(price: f64) -> u64 {
    (price * 1e6) as u64
}
