//! Decoding of prompts with large texts.
//!
//! A parser unescapes a text into a buffer of its own, from which the text is copied: with the line
//! it came in, a large text would be in memory three times. Here it is unescaped in small pieces.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};

/// The size from which a text is decoded in pieces, in bytes.
const LARGE_BYTES: usize = 1 << 20;

/// The size of a piece, in bytes.
const PIECE_BYTES: usize = 64 << 10;

type Members<'a> = BTreeMap<String, &'a RawValue>;

/// Params without their large texts.
pub(crate) struct Divided {
    /// The params with empty texts in their place.
    pub params: String,
    /// The texts, each with the index of its block.
    pub texts: Vec<(usize, String)>,
}

/// Takes the large texts out of the blocks of a prompt. Returns `None` if there are none, or if the
/// params are invalid.
pub(crate) fn divide(params: &str) -> Option<Divided> {
    if params.len() < LARGE_BYTES {
        return None;
    }
    let mut members: Members<'_> = serde_json::from_str(params).ok()?;
    let blocks: Vec<&RawValue> = serde_json::from_str(members.get("prompt")?.get()).ok()?;
    let empty = to_raw_value("").ok()?;
    let mut texts = Vec::new();
    let mut others = Vec::with_capacity(blocks.len());
    for (at, block) in blocks.into_iter().enumerate() {
        match large_text(block) {
            Some((mut members, text)) => {
                texts.push((at, text));
                members.insert("text".into(), &empty);
                others.push(to_raw_value(&members).ok()?);
            }
            None => others.push(block.to_owned()),
        }
    }
    if texts.is_empty() {
        return None;
    }
    let prompt = to_raw_value(&others).ok()?;
    members.insert("prompt".into(), &prompt);
    let params = serde_json::to_string(&members).ok()?;
    Some(Divided { params, texts })
}

/// Returns the members of a block and its text, if that is large.
fn large_text(block: &RawValue) -> Option<(Members<'_>, String)> {
    if block.get().len() < LARGE_BYTES {
        return None;
    }
    let members: Members<'_> = serde_json::from_str(block.get()).ok()?;
    let text = members.get("text")?.get();
    if members.get("type")?.get() != r#""text""# || text.len() < LARGE_BYTES {
        return None;
    }
    let text = unescaped(text)?;
    Some((members, text))
}

/// Decodes a JSON string. Returns `None` if it is none, or has half of a surrogate pair.
fn unescaped(json: &str) -> Option<String> {
    let mut rest = json.strip_prefix('"')?.strip_suffix('"')?;
    let mut text = String::with_capacity(rest.len());
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at_checked(piece_end(rest))?;
        text.push_str(&serde_json::from_str::<String>(&format!("\"{piece}\"")).ok()?);
        rest = behind;
    }
    Some(text)
}

/// Returns the end of a piece that divides no character, escaped or not.
fn piece_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < PIECE_BYTES && at < bytes.len() {
        let end = bytes.len().min(PIECE_BYTES);
        let Some(escape) = memchr::memchr(b'\\', &bytes[at..end]) else {
            at = text.ceil_char_boundary(end);
            break;
        };
        at += escape;
        at += match &bytes[at + 1..] {
            // The first half of a pair, which is followed by the second one.
            [
                b'u',
                b'd' | b'D',
                b'8' | b'9' | b'a' | b'b' | b'A' | b'B',
                ..,
            ] => 12,
            [b'u', ..] => 6,
            _ => 2,
        };
    }
    at.min(bytes.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns texts of two bytes more than `length`, so that pieces end at each place in a unit.
    fn repeated(unit: &str, length: usize) -> Vec<String> {
        (0..unit.len().min(12))
            .map(|at| format!("{}{}", "a".repeat(at), unit.repeat(length / unit.len() + 1)))
            .collect()
    }

    #[test]
    fn text_is_the_same_in_pieces() {
        for unit in [
            "words and \"more\"\n",
            "\u{1}\u{7f}",
            "ü",
            "\u{6f22}",
            "🦀",
            "\\",
            "\n",
        ] {
            for text in repeated(unit, 3 * PIECE_BYTES) {
                let json = serde_json::to_string(&text).unwrap();
                assert!(unescaped(&json).as_deref() == Some(&*text), "{unit:?}");
            }
        }
        for unit in [
            r"\ud83e\udd80",
            r"\u00fc\/",
            r"\\\u6f22",
            r"\uD83E\uDD80x",
            r"\b\f\r\t",
        ] {
            for body in repeated(unit, 2 * PIECE_BYTES) {
                let json = format!("\"{body}\"");
                let whole: String = serde_json::from_str(&json).unwrap();
                assert!(unescaped(&json) == Some(whole), "{unit}");
            }
        }
        for invalid in ["", "\"", "7", r#""\ud83e""#, r#""\udd80""#, r#""\ud83ex""#] {
            assert_eq!(unescaped(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn large_texts_are_taken_out_of_prompt() {
        let large = "some words\n".repeat(LARGE_BYTES / 10);
        let image = "A".repeat(LARGE_BYTES);
        let params = json!({
            "sessionId": "s",
            "prompt": [
                { "type": "text", "text": "short" },
                { "text": large, "type": "text", "annotations": { "priority": 1 } },
                { "type": "image", "data": image, "text": large },
            ],
            "_meta": { "a": 1 },
        });
        let Divided {
            params: rest,
            texts,
        } = divide(&params.to_string()).unwrap();
        assert!(texts == [(1, large.clone())]);
        let mut rest: serde_json::Value = serde_json::from_str(&rest).unwrap();
        assert_eq!(rest["prompt"][1]["text"], "");
        rest["prompt"][1]["text"] = large.into();
        assert!(rest == params);
        for none in [
            json!({ "prompt": [{ "type": "text", "text": "short" }] }).to_string(),
            json!({ "prompt": [{ "type": "image", "data": image }] }).to_string(),
            json!({ "prompt": image }).to_string(),
            image,
        ] {
            assert!(divide(&none).is_none());
        }
    }
}
