//! What hooks answer, one by one and together.

use std::process::ExitStatus;

use serde_json::Value;

use super::moment::{camel, renamed};
use base::text;
use config::settings::{HookEntry, HookFormat, HookPoint};

/// The longest words of a hook's, in characters.
const WORDS: usize = 10_000;

/// What a hook wants; by default nothing is changed or refused.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HookAnswer {
    /// It is not to happen, and why.
    pub(crate) deny: Option<String>,
    /// The user is to be asked, and why.
    pub(crate) ask: Option<String>,
    /// It needs no question.
    pub(crate) allow: bool,
    /// Takes the place of the arguments.
    pub(crate) input: Option<Value>,
    /// For the model.
    pub(crate) context: Option<String>,
    /// For the user.
    pub(crate) notice: Option<String>,
    /// The turn is not over, and what is left to do.
    pub(crate) goes_on: Option<String>,
}

/// What all of them said.
#[derive(Debug, Default, PartialEq)]
pub struct Advice {
    /// It is not to happen: who says so, and why.
    pub deny: Option<String>,
    /// The user is to be asked: the end of a sentence that begins with "because".
    pub ask: Option<String>,
    /// A hook of the user's own says that it needs no question.
    pub allow: bool,
    /// Takes the place of the arguments.
    pub input: Option<Value>,
    /// Takes the place of the result.
    pub output: Option<String>,
    /// Who has changed them last.
    pub changed_by: String,
    /// For the model, in order.
    pub context: Vec<String>,
    /// The turn is not over: what is left to do.
    pub goes_on: Option<String>,
}

impl Advice {
    /// The first to deny or to ask wins, and the last to change something.
    pub(super) fn join(&mut self, other: Self) {
        self.deny = self.deny.take().or(other.deny);
        self.ask = self.ask.take().or(other.ask);
        self.allow |= other.allow;
        if other.input.is_some() {
            (self.input, self.changed_by) = (other.input, other.changed_by);
        }
        self.output = other.output.or(self.output.take());
        self.context.extend(other.context);
        self.goes_on = self.goes_on.take().or(other.goes_on);
    }

    /// Takes in what one has answered. What a project's hook allows is not heard.
    pub(super) fn take(&mut self, answer: HookAnswer, hook: &HookEntry) {
        let name = text::title(&hook.name);
        self.deny = answer.deny.map(|why| match why.is_empty() {
            true => format!("The hook {name} refuses this."),
            false => format!("The hook {name} refuses this: {why}"),
        });
        if let Some(why) = answer.ask {
            let why = why.trim_end_matches('.').to_owned();
            self.ask.get_or_insert(if why.is_empty() { format!("the hook {name} wants it") } else { why });
        }
        self.allow |= answer.allow && !hook.project;
        if answer.input.is_some() {
            (self.input, self.changed_by) = (answer.input, name.clone());
        }
        self.context.extend(answer.context.map(|words| format!("From the hook {name}: {words}")));
        self.goes_on = self.goes_on.take().or(answer.goes_on.map(|words| format!("From the hook {name}: {words}")));
    }
}

impl HookAnswer {
    /// For the log.
    pub(crate) fn summary(&self) -> String {
        let said = [
            ("deny", self.deny.is_some()),
            ("ask", self.ask.is_some()),
            ("allow", self.allow),
            ("input", self.input.is_some()),
            ("context", self.context.is_some()),
            ("notice", self.notice.is_some()),
            ("continue", self.goes_on.is_some()),
        ];
        let said: Vec<&str> = said.into_iter().filter(|(_, said)| *said).map(|(name, _)| name).collect();
        if said.is_empty() { "nothing to say".to_owned() } else { said.join(", ") }
    }

    /// What a program's end means: 0 with JSON, or words, on standard output; 2 is a no, for the reasons on
    /// standard error.
    ///
    /// # Errors
    /// Why it is not an answer: any other end, JSON of another shape.
    pub(crate) fn read(hook: &HookEntry, status: ExitStatus, stdout: &[u8], stderr: &[u8]) -> Result<Self, String> {
        let plain = |bytes: &[u8]| {
            let (text, _) = text::visible(&String::from_utf8_lossy(bytes));
            text::cut_chars(text.trim(), WORDS)
        };
        match status.code() {
            Some(0) => {}
            Some(2) => return Ok(Self::refusal(hook.on, plain(stderr))),
            code => {
                let said = plain(if stderr.trim_ascii().is_empty() { stdout } else { stderr });
                let said = text::title(said.lines().last().unwrap_or_default());
                let code = code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
                let colon = if said.is_empty() { "" } else { ": " };
                return Err(format!("{code}{colon}{}", said.trim_end_matches('.')));
            }
        }
        let printed = stdout.trim_ascii();
        if printed.first() != Some(&b'{') {
            // Plain words are for the model where a hook is asked for them.
            let heard = matches!(hook.on, HookPoint::SessionStart | HookPoint::Prompt);
            let context = Some(plain(printed)).filter(|words| heard && !words.is_empty());
            return Ok(Self { context, ..Self::default() });
        }
        let answer: Value = serde_json::from_slice(printed).map_err(|e| format!("its answer is not JSON: {e}"))?;
        match hook.format {
            HookFormat::Adjutant => Self::ours(&answer),
            HookFormat::Claude => Ok(Self::claude(hook.on, &answer)),
        }
    }

    /// A no, where that means something; else words.
    fn refusal(on: HookPoint, why: String) -> Self {
        match on {
            HookPoint::Prompt | HookPoint::ToolBefore | HookPoint::Permission => {
                Self { deny: Some(why), ..Self::default() }
            }
            HookPoint::TurnEnd => Self { goes_on: Some(why), ..Self::default() },
            HookPoint::ToolAfter => Self { context: Some(why), ..Self::default() },
            HookPoint::SessionStart | HookPoint::Compaction | HookPoint::SessionEnd => {
                Self { notice: Some(why), ..Self::default() }
            }
        }
    }

    fn ours(answer: &Value) -> Result<Self, String> {
        const KEYS: [&str; 7] = ["deny", "ask", "allow", "input", "context", "notice", "continue"];
        let object = answer.as_object().ok_or("its answer is not an object")?;
        if let Some(key) = object.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(format!("its answer has a key \"{}\", which means nothing", text::title(key)));
        }
        let words = |key: &str| match object.get(key) {
            None | Some(Value::Null | Value::Bool(false)) => Ok(None),
            Some(Value::Bool(true)) if ["deny", "ask"].contains(&key) => Ok(Some(String::new())),
            Some(Value::String(words)) => Ok(Some(text::cut_chars(words.trim(), WORDS))),
            Some(_) => Err(format!("\"{key}\" in its answer is not text")),
        };
        let input = object.get("input").filter(|input| !input.is_null()).cloned();
        if input.as_ref().is_some_and(|input| !input.is_object()) {
            return Err("\"input\" in its answer is not an object".into());
        }
        Ok(Self {
            deny: words("deny")?,
            ask: words("ask")?,
            allow: object.get("allow").and_then(Value::as_bool) == Some(true),
            input,
            context: words("context")?,
            notice: words("notice")?,
            goes_on: words("continue")?,
        })
    }

    /// As Claude Code's hooks answer.
    fn claude(on: HookPoint, answer: &Value) -> Self {
        let words =
            |at: &str| answer.pointer(at).and_then(Value::as_str).map(|words| text::cut_chars(words.trim(), WORDS));
        let own = "/hookSpecificOutput";
        let of = |key: &str| words(&format!("{own}/{key}"));
        let mut to = Self { context: of("additionalContext"), notice: words("/systemMessage"), ..Self::default() };
        let why = words("/reason").or_else(|| of("permissionDecisionReason")).unwrap_or_default();
        let decision = of("permissionDecision").or_else(|| of("decision/behavior")).or_else(|| words("/decision"));
        match decision.as_deref() {
            Some("deny" | "block") => {
                let why = of("decision/message").unwrap_or(why);
                let refusal = Self::refusal(on, why);
                to = Self { context: to.context.or(refusal.context), notice: to.notice.or(refusal.notice), ..refusal };
            }
            Some("ask") => to.ask = Some(why),
            Some("allow" | "approve") => to.allow = true,
            _ => {}
        }
        if answer.get("continue").and_then(Value::as_bool) == Some(false) && on != HookPoint::TurnEnd {
            let stop = words("/stopReason").unwrap_or_default();
            let refusal = Self::refusal(on, stop);
            (to.deny, to.goes_on) = (to.deny.or(refusal.deny), to.goes_on.or(refusal.goes_on));
        }
        let input = answer.pointer(&format!("{own}/updatedInput"));
        let input = input.or_else(|| answer.pointer(&format!("{own}/decision/updatedInput")));
        to.input = input.filter(|input| input.is_object()).map(|input| renamed(input, camel));
        to
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn hook(on: HookPoint, format: HookFormat) -> HookEntry {
        HookEntry {
            name: "h".into(),
            on,
            tools: Vec::new(),
            pattern: None,
            command: vec!["x".into()],
            limit: Duration::from_secs(1),
            environment: Vec::new(),
            format,
            withheld: None,
            project: false,
            source: String::new(),
        }
    }

    #[test]
    fn answers() {
        use HookPoint::{Compaction, Prompt, ToolAfter, ToolBefore, TurnEnd};
        let words = |text: &str| Some(text.to_owned());
        let none = HookAnswer::default;
        let table = [
            (ToolBefore, 0, "", "", Ok(none())),
            (ToolBefore, 0, "chatter", "", Ok(none())),
            (Prompt, 0, "On main.\n", "", Ok(HookAnswer { context: words("On main."), ..none() })),
            (ToolBefore, 2, "x", "No.\n", Ok(HookAnswer { deny: words("No."), ..none() })),
            (ToolAfter, 2, "", "Bad.", Ok(HookAnswer { context: words("Bad."), ..none() })),
            (TurnEnd, 2, "", "Tests!", Ok(HookAnswer { goes_on: words("Tests!"), ..none() })),
            (Compaction, 2, "", "Hm.", Ok(HookAnswer { notice: words("Hm."), ..none() })),
            (ToolBefore, 1, "", "a\nboom.\n", Err("exit code 1: boom")),
            (ToolBefore, 0, "{\"deny\":", "", Err("its answer is not JSON")),
            (ToolBefore, 0, r#"{"deni":"x"}"#, "", Err("has a key \"deni\"")),
            (ToolBefore, 0, r#"{"input":[]}"#, "", Err("\"input\" in its answer is not an object")),
            (ToolBefore, 0, r#"{"deny":true}"#, "", Ok(HookAnswer { deny: words(""), ..none() })),
            (ToolBefore, 0, r#"{"ask":"why"}"#, "", Ok(HookAnswer { ask: words("why"), ..none() })),
            (
                ToolBefore,
                0,
                r#"{"allow":true,"input":{"a":1},"context":"c","notice":"n","continue":"go"}"#,
                "",
                Ok(HookAnswer {
                    allow: true,
                    input: Some(json!({"a": 1})),
                    context: words("c"),
                    notice: words("n"),
                    goes_on: words("go"),
                    ..none()
                }),
            ),
        ];
        for (on, code, stdout, stderr, wanted) in table {
            let status = ExitStatus::from_raw(code << 8);
            let read = HookAnswer::read(&hook(on, HookFormat::Adjutant), status, stdout.as_bytes(), stderr.as_bytes());
            match (read, wanted) {
                (Ok(read), Ok(wanted)) => assert_eq!(read, wanted, "{stdout} {stderr}"),
                (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
                (read, wanted) => panic!("{stdout}: {read:?}, not {wanted:?}"),
            }
        }
    }

    #[test]
    fn answers_of_claude_codes() {
        use HookPoint::{Prompt, ToolAfter, ToolBefore, TurnEnd};
        let words = |text: &str| Some(text.to_owned());
        let none = HookAnswer::default;
        let own = |more: Value| json!({ "hookSpecificOutput": more });
        let table = [
            (
                ToolBefore,
                own(json!({"permissionDecision": "deny", "permissionDecisionReason": "No."})),
                HookAnswer { deny: words("No."), ..none() },
            ),
            (ToolBefore, own(json!({"permissionDecision": "allow"})), HookAnswer { allow: true, ..none() }),
            (
                ToolBefore,
                own(json!({"permissionDecision": "ask", "updatedInput": {"file_path": "a"}})),
                HookAnswer { ask: words(""), input: Some(json!({"filePath": "a"})), ..none() },
            ),
            (ToolBefore, json!({"decision": "block", "reason": "Old."}), HookAnswer { deny: words("Old."), ..none() }),
            (
                ToolAfter,
                json!({"decision": "block", "reason": "Fix."}),
                HookAnswer { context: words("Fix."), ..none() },
            ),
            (
                TurnEnd,
                json!({"decision": "block", "reason": "More."}),
                HookAnswer { goes_on: words("More."), ..none() },
            ),
            (TurnEnd, json!({"continue": false}), none()),
            (
                Prompt,
                json!({"continue": false, "stopReason": "Not now."}),
                HookAnswer { deny: words("Not now."), ..none() },
            ),
            (
                Prompt,
                json!({"systemMessage": "s", "hookSpecificOutput": {"additionalContext": "c"}}),
                HookAnswer { context: words("c"), notice: words("s"), ..none() },
            ),
        ];
        for (on, answer, wanted) in table {
            assert_eq!(HookAnswer::claude(on, &answer), wanted, "{answer}");
        }
    }

    #[test]
    fn together() {
        let mut advice = Advice::default();
        let project = HookEntry { project: true, ..hook(HookPoint::Permission, HookFormat::Adjutant) };
        advice.take(HookAnswer { allow: true, context: Some("one".into()), ..HookAnswer::default() }, &project);
        assert!(!advice.allow, "a project's hook allows nothing");
        advice.take(HookAnswer { ask: Some("it is late.".into()), ..HookAnswer::default() }, &project);
        advice.take(HookAnswer { deny: Some("No.".into()), ..HookAnswer::default() }, &project);
        assert_eq!(advice.ask.as_deref(), Some("it is late"));
        assert_eq!(advice.deny.as_deref(), Some("The hook h refuses this: No."));
        assert_eq!(advice.context, ["From the hook h: one"]);
    }
}
