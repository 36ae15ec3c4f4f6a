//! Errors of decoding in the words of JSON instead of those of Rust.

/// Integer types, with the smallest and the largest value.
const INTEGERS: [(&str, &str); 8] = [
    ("u8", "from 0 to 255"),
    ("u16", "from 0 to 65535"),
    ("u32", "from 0 to 4294967295"),
    ("u64", "that is not negative"),
    ("usize", "that is not negative"),
    ("i32", "from -2147483648 to 2147483647"),
    ("i64", "from -9223372036854775808 to 9223372036854775807"),
    ("isize", "from -9223372036854775808 to 9223372036854775807"),
];

/// Returns a message of serde in words: `expected a list, found a string`. A prefix, such as
/// the name of a member, remains. Messages of other forms are returned as they are.
pub(crate) fn plain_message(message: &str) -> String {
    let (context, rest) = ["invalid type: ", "invalid value: "]
        .iter()
        .filter_map(|form| message.split_once(form))
        .min_by_key(|(context, _)| context.len())
        .unwrap_or((message, ""));
    let Some((found, expected)) = rest.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    format!(
        "{context}expected {}, found {}",
        expected_in_words(expected),
        found_in_words(found)
    )
}

fn expected_in_words(expected: &str) -> String {
    if let Some((_, range)) = INTEGERS.iter().find(|(name, _)| *name == expected) {
        return format!("a whole number {range}");
    }
    let begins = |words: &[&str]| words.iter().any(|word| expected.starts_with(word));
    if matches!(expected, "f32" | "f64") {
        return "a number".to_owned();
    }
    if expected == "unit" {
        return "null".to_owned();
    }
    if begins(&[
        "struct ",
        "a map",
        "map",
        "internally tagged enum",
        "adjacently tagged enum",
    ]) {
        return "an object".to_owned();
    }
    if begins(&["a sequence", "sequence", "tuple ", "an array"]) {
        return "a list".to_owned();
    }
    if begins(&["string or map", "enum "]) {
        return "a string or an object".to_owned();
    }
    if begins(&[
        "path string",
        "a borrowed string",
        "str",
        "variant identifier",
    ]) {
        return "a string".to_owned();
    }
    expected.to_owned()
}

fn found_in_words(found: &str) -> String {
    match found.split([' ', '`']).next().unwrap_or_default() {
        "string" | "character" => "a string".to_owned(),
        "sequence" => "a list".to_owned(),
        "map" => "an object".to_owned(),
        "unit" | "null" | "Option" => "null".to_owned(),
        "boolean" => found.replace("boolean ", ""),
        "integer" => found.replace("integer ", ""),
        "floating" => found.replace("floating point ", ""),
        _ => found.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_in_words_of_json() {
        let table = [
            (
                "invalid type: sequence, expected u16",
                "expected a whole number from 0 to 65535, found a list",
            ),
            (
                "invalid type: string …, expected u64",
                "expected a whole number that is not negative, found a string",
            ),
            (
                "invalid value: integer `-1`, expected u32",
                "expected a whole number from 0 to 4294967295, found `-1`",
            ),
            (
                "invalid type: map, expected a string",
                "expected a string, found an object",
            ),
            (
                "invalid type: null, expected struct NewSessionRequest",
                "expected an object, found null",
            ),
            (
                "invalid type: boolean `true`, expected a sequence",
                "expected a list, found `true`",
            ),
            (
                "invalid type: floating point `1.5`, expected f64",
                "expected a number, found `1.5`",
            ),
            (
                "must be a string for type: id: invalid type: integer `7`, expected a string",
                "must be a string for type: id: expected a string, found `7`",
            ),
            (
                "a: invalid value: string \"invalid type: \", expected u8",
                "a: expected a whole number from 0 to 255, found a string",
            ),
            ("missing field `cwd`", "missing field `cwd`"),
            (
                "unknown variant `smell`, expected one of `text`, `image`",
                "unknown variant `smell`, expected one of `text`, `image`",
            ),
        ];
        for (message, wanted) in table {
            assert_eq!(plain_message(message), wanted);
        }
    }
}
