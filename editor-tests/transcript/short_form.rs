//! The short form of `agent` blocks, which stands for the messages of the wire and for nothing
//! else: each line is expanded to exactly one message before it is compared.
//!
//! ```text
//! call1 new read (read)                      a `tool_call`: name (also the title), kind
//! call1 completed "Read a.txt"               a `tool_call_update`: status, title
//!   at ${CWD}/a.txt:3                        one of its `locations`
//!   input {"filePath":"a.txt"}               its `rawInput`
//!   | hello world                            a line of its text
//!   diff ${CWD}/b.txt                        a difference: `-` old, `+` new, ` ` both
//!   - hello
//!   + good morning
//!   output {"additions":1}                   its `rawOutput`
//!   …                                        any other members
//! ask1 about call2: edit (edit) "Edit b.txt" a `session/request_permission`, with the same fields
//!   option once                              one of its options
//!   meta {"adjutant":{}}                     its `_meta`
//! text part1 "Changed."                      an `agent_message_chunk`; `thought`, `user`: the other chunks
//! update plan {"entries":[]}                 any other `session/update`
//! answer 1 {"sessionId":"${SESSION}"}        a result
//! answer 2 end_turn                          the result of a prompt
//! answer 3 error -32602 "No such file"       an error
//! $/cancel_request ask1                      a question withdrawn
//! ```
//!
//! `@2 ` before a line: it is about `${SESSION2}`. A text with several lines follows its head in
//! lines of `  | `. A message that fits none of these is JSON, as on the wire.

use std::fmt::Write as _;
use std::str::Lines;

use serde_json::{Map, Value, json};
use similar::{ChangeTag, TextDiff};

/// Session updates with a text, and their words.
const CHUNKS: [(&str, &str); 3] = [
    ("text", "agent_message_chunk"),
    ("thought", "agent_thought_chunk"),
    ("user", "user_message_chunk"),
];

/// Options of a question that need only their id.
const OPTIONS: [(&str, &str, &str); 4] = [
    ("once", "Allow once", "allow_once"),
    ("reject", "Reject", "reject_once"),
    ("yes", "Trust", "allow_always"),
    ("no", "Not now", "reject_once"),
];

/// States of a call.
const STATES: [&str; 4] = ["pending", "in_progress", "completed", "failed"];

/// Returns the messages of a block, one JSON text per line.
///
/// # Errors
/// A line that is neither JSON nor a short form.
pub(super) fn expand(body: &str) -> Result<String, String> {
    let mut text = String::new();
    let mut lines = body.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim().is_empty() || line.starts_with('{') {
            writeln!(text, "{line}").unwrap();
            continue;
        }
        let mut fields = String::new();
        while let Some(field) = lines.next_if(|line| line.starts_with("  ")) {
            writeln!(fields, "{}", &field[2..]).unwrap();
        }
        let value = message(line, fields.lines()).ok_or_else(|| format!("no message: {line}"))?;
        writeln!(text, "{value}").unwrap();
    }
    Ok(text)
}

/// Returns a block with each message in its short form, if it has one that loses nothing.
pub(super) fn shorten(body: &str) -> String {
    let mut text = String::new();
    for line in body.lines() {
        let short = serde_json::from_str(line)
            .ok()
            .and_then(|value: Value| short(&value).filter(|short| is_expanded_to(short, &value)));
        match short {
            Some(short) => text.push_str(&short),
            None => writeln!(text, "{line}").unwrap(),
        }
    }
    text
}

fn is_expanded_to(short: &str, value: &Value) -> bool {
    let Ok(text) = expand(short) else {
        return false;
    };
    text.lines().count() == 1 && serde_json::from_str(text.trim_end()).ok().as_ref() == Some(value)
}

/// The rest of a head line.
struct Head<'a>(&'a str);

impl<'a> Head<'a> {
    fn word(&mut self) -> &'a str {
        let (word, rest) = self.0.split_once(' ').unwrap_or((self.0, ""));
        self.0 = rest;
        word
    }

    /// Takes a JSON value that begins with one of these characters.
    fn json(&mut self, begins: &[char]) -> Option<Value> {
        if !self.0.starts_with(begins) {
            return None;
        }
        let mut values = serde_json::Deserializer::from_str(self.0).into_iter();
        let value = values.next()?.ok()?;
        self.0 = self.0[values.byte_offset()..].trim_start();
        Some(value)
    }

    fn string(&mut self) -> Option<Value> {
        self.json(&['"'])
    }

    /// Takes a kind in parentheses.
    fn kind(&mut self) -> Option<&'a str> {
        let (kind, rest) = self.0.strip_prefix('(')?.split_once(')')?;
        self.0 = rest.trim_start();
        Some(kind)
    }

    /// Takes the name of a tool.
    fn tool(&mut self) -> Option<&'a str> {
        if self.0.is_empty() || self.0.starts_with(['(', '"']) {
            return None;
        }
        Some(self.word())
    }
}

/// Returns a message, from its head and its fields.
fn message(line: &str, fields: Lines) -> Option<Value> {
    let mut head = Head(line);
    let mut session = "${SESSION}".to_owned();
    if let Some(number) = line.strip_prefix('@') {
        head = Head(number);
        session = format!("${{SESSION{}}}", head.word());
    }
    let word = head.word();
    let has_fields = fields.clone().next().is_some();
    if has_fields && matches!(word, "answer" | "update" | "$/cancel_request") {
        return None;
    }
    let update = match word {
        "answer" => {
            let answer = answer(&mut head)?;
            return head.0.is_empty().then_some(answer);
        }
        "$/cancel_request" => {
            let id = placeholder(head.word());
            let cancel = json!({ "method": "$/cancel_request", "params": { "requestId": id } });
            return head.0.is_empty().then_some(cancel);
        }
        "update" => other_update(&mut head)?,
        _ if CHUNKS.iter().any(|(name, _)| *name == word) => chunk(word, &mut head, fields)?,
        _ if word.starts_with("ask") => return question(word, &mut head, fields, &session),
        _ if word.starts_with("call") => call(word, &mut head, fields)?,
        _ => return None,
    };
    if !head.0.is_empty() {
        return None;
    }
    Some(
        json!({ "method": "session/update", "params": { "sessionId": session, "update": update } }),
    )
}

fn answer(head: &mut Head) -> Option<Value> {
    let id = head.json(&['"', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])?;
    if let Some(result) = head.json(&['{', '[', '"', 'n']) {
        return Some(json!({ "id": id, "result": result }));
    }
    let word = head.word();
    if word != "error" {
        let mut result = Map::from_iter([("stopReason".to_owned(), word.into())]);
        if let Some(Value::Object(members)) = head.json(&['{']) {
            result.extend(members);
        }
        return Some(json!({ "id": id, "result": result }));
    }
    let code: i64 = head.word().parse().ok()?;
    let mut error = json!({ "code": code, "message": head.string()? });
    if let Some(data) = head.json(&['{', '[', '"']) {
        error["data"] = data;
    }
    Some(json!({ "id": id, "error": error }))
}

fn other_update(head: &mut Head) -> Option<Value> {
    let mut update = json!({ "sessionUpdate": head.word() });
    if let Some(Value::Object(members)) = head.json(&['{']) {
        update.as_object_mut()?.extend(members);
    }
    Some(update)
}

fn chunk(word: &str, head: &mut Head, fields: Lines) -> Option<Value> {
    let kind = CHUNKS.iter().find(|(name, _)| *name == word)?.1;
    let id = if head.0.starts_with('"') {
        None
    } else {
        head.tool()
    };
    let mut update = json!({ "sessionUpdate": kind });
    if let Some(id) = id {
        update["messageId"] = placeholder(id).into();
    }
    let text = head.string();
    let mut lines = Vec::new();
    for field in fields {
        match field.split_once(' ') {
            Some((name, value)) if !field.starts_with('|') => {
                update[name] = serde_json::from_str(value).ok()?;
            }
            _ => lines.push(piped(field)?),
        }
    }
    let text = text.unwrap_or_else(|| lines.join("\n").into());
    update["content"] = json!({ "type": "text", "text": text });
    Some(update)
}

fn call(word: &str, head: &mut Head, fields: Lines) -> Option<Value> {
    let mut update =
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": placeholder(word) });
    if head.0 == "new" || head.0.starts_with("new ") {
        head.word();
        update["sessionUpdate"] = "tool_call".into();
        named(&mut update, head);
        if let Some(title) = head.string().or(update.get("name").cloned()) {
            update["title"] = title;
        }
    } else {
        if STATES.contains(&head.0.split(' ').next()?) {
            update["status"] = head.word().into();
        }
        if let Some(title) = head.string() {
            update["title"] = title;
        }
    }
    let mut call = update.as_object()?.clone();
    read_fields(&mut call, fields)?;
    Some(call.into())
}

/// Takes the name and the kind of a call.
fn named(call: &mut Value, head: &mut Head) {
    if let Some(name) = head.tool() {
        call["name"] = name.into();
    }
    if let Some(kind) = head.kind() {
        call["kind"] = kind.into();
    }
}

fn question(word: &str, head: &mut Head, fields: Lines, session: &str) -> Option<Value> {
    if head.word() != "about" {
        return None;
    }
    let id = head.word().strip_suffix(':')?;
    let mut call = json!({ "toolCallId": placeholder(id) });
    named(&mut call, head);
    if let Some(title) = head.string() {
        call["title"] = title;
    }
    if !head.0.is_empty() {
        return None;
    }
    let mut options = Vec::new();
    let mut meta = None;
    let mut others = String::new();
    for field in fields {
        if let Some(option) = field.strip_prefix("option ") {
            options.push(read_option(option)?);
        } else if let Some(text) = field.strip_prefix("meta ") {
            meta = Some(serde_json::from_str(text).ok()?);
        } else {
            writeln!(others, "{field}").unwrap();
        }
    }
    let mut call = call.as_object()?.clone();
    read_fields(&mut call, others.lines())?;
    if !call.contains_key("…") && !call.contains_key("status") {
        call.insert("status".into(), "pending".into());
    }
    let mut params = json!({ "sessionId": session, "toolCall": call, "options": options });
    if let Some(meta) = meta {
        params["_meta"] = meta;
    }
    Some(
        json!({ "id": placeholder(word), "method": "session/request_permission", "params": params }),
    )
}

fn read_option(text: &str) -> Option<Value> {
    if let Some((id, name, kind)) = OPTIONS.iter().find(|(id, ..)| *id == text) {
        return Some(json!({ "optionId": id, "name": name, "kind": kind }));
    }
    if let Some(name) = text.strip_prefix("always ") {
        let name: Value = serde_json::from_str(name).ok()?;
        return Some(json!({ "optionId": "always", "name": name, "kind": "allow_always" }));
    }
    serde_json::from_str(text).ok()
}

fn short_option(option: &Value) -> String {
    let id = option["optionId"].as_str().unwrap_or_default();
    let short = match option["name"].as_str() {
        Some(name) if id == "always" => format!("always {}", quoted(name)),
        _ => id.to_owned(),
    };
    match read_option(&short) {
        Some(read) if read == *option => short,
        _ => option.to_string(),
    }
}

/// Reads the fields of a call.
fn read_fields(call: &mut Map<String, Value>, fields: Lines) -> Option<()> {
    let mut locations = Vec::new();
    let mut content = Vec::new();
    let mut fields = fields.peekable();
    while let Some(field) = fields.next() {
        if field.starts_with('|') {
            let mut text = vec![piped(field)?];
            while let Some(line) = fields.next_if(|line| line.starts_with('|')) {
                text.push(piped(line)?);
            }
            content.push(text_content(&text.join("\n")));
            continue;
        }
        if field == "…" {
            call.insert("…".into(), "…".into());
            continue;
        }
        let (name, value) = field.split_once(' ')?;
        match name {
            "at" => locations.push(read_location(value)),
            "diff" | "new" => {
                let mut lines = Vec::new();
                while let Some(line) =
                    fields.next_if(|line| line.starts_with([' ', '-', '+', '\\']))
                {
                    lines.push(line);
                }
                content.push(read_diff(value, name == "new", &lines)?);
            }
            "item" => content.push(serde_json::from_str(value).ok()?),
            "input" => drop(call.insert("rawInput".into(), serde_json::from_str(value).ok()?)),
            "output" => drop(call.insert("rawOutput".into(), serde_json::from_str(value).ok()?)),
            _ => drop(call.insert(name.into(), serde_json::from_str(value).ok()?)),
        }
    }
    if !locations.is_empty() {
        call.insert("locations".into(), locations.into());
    }
    if !content.is_empty() {
        call.insert("content".into(), content.into());
    }
    Some(())
}

/// Returns a line of text after its bar.
fn piped(line: &str) -> Option<&str> {
    let text = line.trim_start_matches(' ').strip_prefix('|')?;
    Some(text.strip_prefix(' ').unwrap_or(text))
}

fn text_content(text: &str) -> Value {
    json!({ "type": "content", "content": { "type": "text", "text": text } })
}

fn read_location(text: &str) -> Value {
    match text.rsplit_once(':') {
        Some((path, line)) if let Ok(line) = line.parse::<u32>() => {
            json!({ "path": path, "line": line })
        }
        _ => json!({ "path": text }),
    }
}

fn read_diff(path: &str, is_new: bool, lines: &[&str]) -> Option<Value> {
    let mut old = String::new();
    let mut new = String::new();
    for line in lines {
        let text = line.get(2..).unwrap_or_default();
        match line.as_bytes().first()? {
            b'\\' if text == "old" => drop(old.pop()),
            b'\\' if text == "new" => drop(new.pop()),
            b'-' => writeln!(old, "{text}").unwrap(),
            b'+' => writeln!(new, "{text}").unwrap(),
            b' ' => {
                writeln!(old, "{text}").unwrap();
                writeln!(new, "{text}").unwrap();
            }
            _ => return None,
        }
    }
    let old = if is_new { Value::Null } else { old.into() };
    Some(json!({ "type": "diff", "path": path, "oldText": old, "newText": new }))
}

/// Returns the short form of a message.
fn short(value: &Value) -> Option<String> {
    let value_members = value.as_object()?;
    if value["method"] == "session/request_permission" {
        return short_question(value);
    }
    if value["method"] == "session/update" {
        let update = value["params"]["update"].as_object()?;
        let text = short_update(update)?;
        return Some(format!("{}{text}", prefix(&value["params"])?));
    }
    if value["method"] == "$/cancel_request" {
        return Some(format!(
            "$/cancel_request {}\n",
            bare(&value["params"]["requestId"])?
        ));
    }
    let id = value_members.get("id")?;
    if let Some(result) = value_members.get("result") {
        return Some(format!("answer {id} {}\n", short_result(result)));
    }
    let error = value_members.get("error")?;
    let message = quoted(error["message"].as_str()?);
    let data = error
        .get("data")
        .map_or(String::new(), |data| format!(" {data}"));
    Some(format!(
        "answer {id} error {} {message}{data}\n",
        error["code"]
    ))
}

fn short_result(result: &Value) -> String {
    let Some(reason) = result["stopReason"].as_str() else {
        return result.to_string();
    };
    let mut members = result.as_object().cloned().unwrap_or_default();
    members.shift_remove("stopReason");
    if members.is_empty() {
        return reason.to_owned();
    }
    format!("{reason} {}", Value::from(members))
}

/// Returns the mark of a session other than the first.
fn prefix(params: &Value) -> Option<String> {
    let number = params["sessionId"]
        .as_str()?
        .strip_prefix("${SESSION")?
        .strip_suffix('}')?;
    if number.is_empty() {
        return Some(String::new());
    }
    Some(format!("@{number} "))
}

fn short_update(update: &Map<String, Value>) -> Option<String> {
    let kind = update.get("sessionUpdate")?.as_str()?;
    if let Some((word, _)) = CHUNKS.iter().find(|(_, name)| *name == kind)
        && let Some(text) = update.get("content")?["text"].as_str()
        && update.get("content")?.as_object()?.len() == 2
    {
        let id = match update.get("messageId") {
            Some(id) => format!(" {}", bare(id)?),
            None => String::new(),
        };
        let mut short = if text.contains('\n') && is_plain(text) {
            format!("{word}{id}\n{}", bars(text))
        } else {
            format!("{word}{id} {}\n", quoted(text))
        };
        for (name, value) in update {
            if !matches!(name.as_str(), "sessionUpdate" | "content" | "messageId") {
                writeln!(short, "  {name} {value}").unwrap();
            }
        }
        return Some(short);
    }
    if matches!(kind, "tool_call" | "tool_call_update") {
        let mut call = update.clone();
        call.shift_remove("sessionUpdate");
        let id = call.shift_remove("toolCallId")?;
        let head = if kind == "tool_call" {
            short_name(&mut call, true)
        } else {
            short_state(&mut call)
        };
        return Some(format!("{}{head}\n{}", bare(&id)?, short_fields(&mut call)));
    }
    let mut members = update.clone();
    members.shift_remove("sessionUpdate");
    if members.is_empty() {
        return Some(format!("update {kind}\n"));
    }
    Some(format!("update {kind} {}\n", Value::from(members)))
}

/// Returns name, kind and title of a call, and removes them; the title of a new call is left out if
/// it is the name.
fn short_name(call: &mut Map<String, Value>, is_new: bool) -> String {
    let mut head = String::new();
    if is_new {
        head.push_str(" new");
    }
    let name = call.shift_remove("name");
    if let Some(name) = name.as_ref().and_then(Value::as_str) {
        write!(head, " {name}").unwrap();
    }
    if let Some(kind) = call.shift_remove("kind") {
        write!(head, " ({})", kind.as_str().unwrap_or_default()).unwrap();
    }
    let title = call.shift_remove("title");
    if let Some(title) = title.as_ref().and_then(Value::as_str)
        && !(is_new && name.as_ref().is_some_and(|name| name == title))
    {
        write!(head, " {}", quoted(title)).unwrap();
    }
    head
}

/// Returns state and title of a call, and removes them.
fn short_state(call: &mut Map<String, Value>) -> String {
    let mut head = String::new();
    if let Some(state) = call.shift_remove("status") {
        write!(head, " {}", state.as_str().unwrap_or_default()).unwrap();
    }
    if let Some(title) = call.shift_remove("title") {
        write!(head, " {title}").unwrap();
    }
    head
}

fn short_fields(call: &mut Map<String, Value>) -> String {
    let mut text = String::new();
    let is_list = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    if call.get("locations").is_some_and(is_list) {
        let locations = call.shift_remove("locations").unwrap_or_default();
        for location in locations.as_array().into_iter().flatten() {
            let path = location["path"].as_str().unwrap_or_default();
            match location.get("line") {
                Some(line) => writeln!(text, "  at {path}:{line}").unwrap(),
                None => writeln!(text, "  at {path}").unwrap(),
            }
        }
    }
    if let Some(input) = call.shift_remove("rawInput") {
        writeln!(text, "  input {input}").unwrap();
    }
    if call.get("content").is_some_and(is_list) {
        let content = call.shift_remove("content").unwrap_or_default();
        let mut after_text = false;
        for item in content.as_array().into_iter().flatten() {
            text.push_str(&short_content(item, after_text));
            after_text = item["type"] == "content";
        }
    }
    if let Some(output) = call.shift_remove("rawOutput") {
        writeln!(text, "  output {output}").unwrap();
    }
    let is_open = call.shift_remove("…").is_some();
    for (name, value) in call {
        writeln!(text, "  {name} {value}").unwrap();
    }
    if is_open {
        text.push_str("  …\n");
    }
    text
}

fn short_content(item: &Value, after_text: bool) -> String {
    if let Some(text) = item["content"]["text"].as_str()
        && *item == text_content(text)
        && is_plain(text)
        && !after_text
    {
        return bars(text);
    }
    match short_diff(item) {
        Some(text) => text,
        None => format!("  item {item}\n"),
    }
}

fn short_diff(item: &Value) -> Option<String> {
    let path = item["path"].as_str()?;
    let new = item["newText"].as_str()?;
    let old = item["oldText"].as_str();
    let head = if old.is_some() { "diff" } else { "new" };
    let old = old.unwrap_or_default();
    if !is_plain(old) || !is_plain(new) {
        return None;
    }
    let mut text = format!("  {head} {path}\n");
    let ends = |text: &str| text.is_empty() || text.ends_with('\n');
    let whole = |text: &str| {
        let end = if ends(text) { "" } else { "\n" };
        format!("{text}{end}")
    };
    let whole_old = whole(old);
    let whole_new = whole(new);
    let diff = TextDiff::from_lines(&whole_old, &whole_new);
    let mut lines = String::new();
    for change in diff.iter_all_changes() {
        let sign = match change.tag() {
            ChangeTag::Delete => '-',
            ChangeTag::Insert => '+',
            ChangeTag::Equal => ' ',
        };
        write!(lines, "  {sign} {}", change.value()).unwrap();
    }
    text.push_str(&lines);
    if !ends(old) {
        text.push_str("  \\ old\n");
    }
    if !ends(new) {
        text.push_str("  \\ new\n");
    }
    Some(text)
}

fn short_question(value: &Value) -> Option<String> {
    let params = &value["params"];
    let mut call = params["toolCall"].as_object()?.clone();
    let id = call.shift_remove("toolCallId")?;
    if call.get("status").is_some_and(|status| status == "pending") {
        call.shift_remove("status");
    }
    let mut text = format!(
        "{}{} about {}:{}\n",
        prefix(params)?,
        bare(&value["id"])?,
        bare(&id)?,
        short_name(&mut call, false)
    );
    text.push_str(&short_fields(&mut call));
    for option in params["options"].as_array()? {
        writeln!(text, "  option {}", short_option(option)).unwrap();
    }
    if let Some(meta) = params.get("_meta") {
        writeln!(text, "  meta {meta}").unwrap();
    }
    Some(text)
}

/// Returns the lines of a text, each after a bar.
fn bars(text: &str) -> String {
    let mut lines = String::new();
    for line in text.split('\n') {
        let space = if line.is_empty() { "" } else { " " };
        writeln!(lines, "  |{space}{line}").unwrap();
    }
    lines
}

/// Returns whether a text can be shown line by line: without control characters, and with no blank
/// at a line's end, which editors remove.
fn is_plain(text: &str) -> bool {
    let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    !text.contains(is_control) && !text.split('\n').any(|line| line.ends_with([' ', '\t']))
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Returns an id without the quotes of a placeholder.
fn bare(id: &Value) -> Option<&str> {
    id.as_str()?.strip_prefix('‹')?.strip_suffix('›')
}

fn placeholder(id: &str) -> String {
    format!("‹{id}›")
}

/// Tests of both directions: the expansion of a short form, and that shortening is its opposite.
pub(super) fn own_tests() {
    let update = |update: &str| {
        format!(
            r#"{{"method":"session/update","params":{{"sessionId":"${{SESSION}}","update":{update}}}}}"#
        )
    };
    let table = [
        (
            "call1 new read (read)\n",
            update(
                r#"{"sessionUpdate":"tool_call","toolCallId":"‹call1›","title":"read","name":"read","kind":"read"}"#,
            ),
        ),
        (
            "call2 completed\n  at a b.txt:3\n  at /c\n  | x\n  |\n  output {\"n\":1}\n  …\n",
            update(
                r#"{"sessionUpdate":"tool_call_update","toolCallId":"‹call2›","status":"completed","locations":[{"path":"a b.txt","line":3},{"path":"/c"}],"content":[{"type":"content","content":{"type":"text","text":"x\n"}}],"rawOutput":{"n":1},"…":"…"}"#,
            ),
        ),
        (
            "call1 \"Edit a\"\n  diff /a\n  - x\n  + y\n    z\n  \\ new\n",
            update(
                r#"{"sessionUpdate":"tool_call_update","toolCallId":"‹call1›","title":"Edit a","content":[{"type":"diff","path":"/a","oldText":"x\nz\n","newText":"y\nz"}]}"#,
            ),
        ),
        (
            "call1 failed\n  new /a\n",
            update(
                r#"{"sessionUpdate":"tool_call_update","toolCallId":"‹call1›","status":"failed","content":[{"type":"diff","path":"/a","oldText":null,"newText":""}]}"#,
            ),
        ),
        (
            "ask1 about call3: edit (edit) \"Edit a\"\n  option once\n  option always \"Always\"\n  option {\"optionId\":\"reject\"}\n  meta {\"adjutant\":{}}\n",
            r#"{"id":"‹ask1›","method":"session/request_permission","params":{"sessionId":"${SESSION}","toolCall":{"toolCallId":"‹call3›","status":"pending","name":"edit","kind":"edit","title":"Edit a"},"options":[{"optionId":"once","name":"Allow once","kind":"allow_once"},{"optionId":"always","name":"Always","kind":"allow_always"},{"optionId":"reject"}],"_meta":{"adjutant":{}}}}"#.to_owned(),
        ),
        (
            "@2 text part1 \"Hi\"\n",
            r#"{"method":"session/update","params":{"sessionId":"${SESSION2}","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Hi"},"messageId":"‹part1›"}}}"#.to_owned(),
        ),
        (
            "user\n  | a\n  |  b\n",
            update(r#"{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"a\n b"}}"#),
        ),
        (
            "update plan {\"entries\":[]}\n",
            update(r#"{"sessionUpdate":"plan","entries":[]}"#),
        ),
        (
            "answer 2 end_turn\n",
            r#"{"id":2,"result":{"stopReason":"end_turn"}}"#.to_owned(),
        ),
        (
            "answer 2 end_turn {\"usage\":{}}\n",
            r#"{"id":2,"result":{"stopReason":"end_turn","usage":{}}}"#.to_owned(),
        ),
        (
            "answer 1 {}\n",
            r#"{"id":1,"result":{}}"#.to_owned(),
        ),
        (
            "$/cancel_request ask1\n",
            r#"{"method":"$/cancel_request","params":{"requestId":"‹ask1›"}}"#.to_owned(),
        ),
        (
            "answer \"a\" error -32602 \"No\" {\"x\":1}\n",
            r#"{"id":"a","error":{"code":-32602,"message":"No","data":{"x":1}}}"#.to_owned(),
        ),
    ];
    for (short, message) in table {
        assert_eq!(shorten(&message), short);
        let expanded = expand(short).unwrap();
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(parse(&expanded), parse(&message), "{short}");
    }
    // Nothing but JSON says these exactly.
    let wire = [
        r#"{"method":"session/update","params":{"sessionId":"…","update":{"sessionUpdate":"plan"}}}"#
            .to_owned(),
        update(r#"{"sessionUpdate":"tool_call_update","toolCallId":"other","status":"completed"}"#),
        r#"{"id":2,"result":{},"_meta":{}}"#.to_owned(),
    ];
    for message in wire {
        assert_eq!(shorten(&message), format!("{message}\n"));
    }
    let wrongs = [
        "tool read",
        "  | a",
        "text part1 \"a\" b",
        "ask1 call2",
        "answer 1 {} b",
        "answer 2 end_turn b",
        "answer 2 end_turn\n  | a",
        "update plan\n  | a",
        "$/cancel_request ask1 b",
    ];
    for wrong in wrongs {
        assert!(expand(wrong).is_err(), "{wrong}");
    }
}
