//! The model's questions at a terminal: one after the other, numbers or words.

use std::collections::BTreeMap;

use protocol::acp::v1;

/// Asks what a form asks. `read` shows a text and gives the line that was typed; none at the end of
/// the input, which dismisses the form.
pub(super) fn ask(
    request: &v1::CreateElicitationRequest,
    read: &mut dyn FnMut(&str) -> Option<String>,
) -> v1::CreateElicitationResponse {
    let v1::ElicitationMode::Form(form) = &request.mode else {
        return v1::CreateElicitationResponse::new(v1::ElicitationAction::Decline);
    };
    let properties = &form.requested_schema.properties;
    let mut content = BTreeMap::new();
    for (name, property) in properties.iter().filter(|(name, _)| !name.ends_with(OWN)) {
        let (words, labels, several) = shown(property);
        let mut text = format!("\n? {words}\n");
        for (number, (label, description)) in labels.iter().enumerate() {
            let more = if description.is_empty() { String::new() } else { format!(": {description}") };
            text += &format!("  {}  {label}{more}\n", number + 1);
        }
        if several {
            text += "  (several: 1, 2)\n";
        }
        let Some(line) = read(&text) else {
            return v1::CreateElicitationResponse::new(v1::ElicitationAction::Cancel);
        };
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        match numbers(line, labels.len(), several) {
            Some(numbers) => {
                let chosen: Vec<String> = numbers.into_iter().map(|number| labels[number].0.clone()).collect();
                let value = match chosen.as_slice() {
                    [one] if !several => v1::ElicitationContentValue::String(one.clone()),
                    _ => v1::ElicitationContentValue::StringArray(chosen),
                };
                content.insert(name.clone(), value);
            }
            None => {
                let own = format!("{name}{OWN}");
                let name = if properties.contains_key(&own) { own } else { name.clone() };
                content.insert(name, v1::ElicitationContentValue::String(line.to_owned()));
            }
        }
    }
    let accepted = v1::ElicitationAcceptAction::new().content(content);
    v1::CreateElicitationResponse::new(v1::ElicitationAction::Accept(accepted))
}

/// What the name of a field for words of one's own ends with.
const OWN: &str = "_own";

/// A property's words, its options with what they mean, and whether several can be chosen.
fn shown(property: &v1::ElicitationPropertySchema) -> (String, Vec<(String, String)>, bool) {
    let pairs = |options: &[v1::EnumOption]| {
        let pair = |option: &v1::EnumOption| (option.value.clone(), option.description.clone().unwrap_or_default());
        options.iter().map(pair).collect()
    };
    match property {
        v1::ElicitationPropertySchema::String(string) => {
            (string.description.clone().unwrap_or_default(), pairs(string.one_of.as_deref().unwrap_or_default()), false)
        }
        v1::ElicitationPropertySchema::Array(array) => {
            let options = match &array.items {
                v1::MultiSelectItems::Titled(items) => pairs(&items.options),
                _ => Vec::new(),
            };
            (array.description.clone().unwrap_or_default(), options, true)
        }
        _ => (String::new(), Vec::new(), false),
    }
}

/// The options that a line names by their numbers; none where it is words.
fn numbers(line: &str, options: usize, several: bool) -> Option<Vec<usize>> {
    let one = |word: &str| word.trim().parse::<usize>().ok()?.checked_sub(1).filter(|at| *at < options);
    let all: Vec<usize> = line.split(',').map(one).collect::<Option<_>>()?;
    (all.len() == 1 || several).then_some(all)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answered(lines: &[&str]) -> (String, Value) {
        let request = json!({
            "mode": "form", "sessionId": "s", "message": "m",
            "requestedSchema": { "type": "object", "properties": {
                "question1": { "type": "string", "title": "H", "description": "Which?",
                    "oneOf": [{ "const": "a", "title": "a", "description": "first" }, { "const": "b", "title": "b" }] },
                "question1_own": { "type": "string", "title": "H: something else" },
                "question2": { "type": "array", "description": "Which of them?",
                    "items": { "anyOf": [{ "const": "x", "title": "x" }, { "const": "y", "title": "y" }] } },
                "question2_own": { "type": "string" },
                "question3": { "type": "string", "description": "Why?" },
            }},
        });
        let request = serde_json::from_value(request).unwrap();
        let (mut shown, mut lines) = (String::new(), lines.iter());
        let response = ask(&request, &mut |text| {
            shown += text;
            lines.next().map(|line| format!("{line}\n"))
        });
        (shown, serde_json::to_value(response).unwrap())
    }

    #[test]
    fn numbers_or_words() {
        let table = [
            (["2", "1, 2", "so"], json!({ "question1": "b", "question2": ["x", "y"], "question3": "so" })),
            (["mine", "neither", ""], json!({ "question1_own": "mine", "question2_own": "neither" })),
            (["3", "1", "7"], json!({ "question1_own": "3", "question2": ["x"], "question3": "7" })),
            (["1, 2", "", ""], json!({ "question1_own": "1, 2" })),
            (["", "", ""], json!({})),
        ];
        for (lines, content) in table {
            assert_eq!(answered(&lines).1, json!({ "action": "accept", "content": content }), "{lines:?}");
        }
        assert_eq!(answered(&["1"]).1, json!({ "action": "cancel" }));
        let (shown, _) = answered(&["1", "1", "1"]);
        assert_eq!(
            shown,
            "\n? Which?\n  1  a: first\n  2  b\n\n? Which of them?\n  1  x\n  2  y\n  (several: 1, 2)\n\n? Why?\n"
        );
    }
}
