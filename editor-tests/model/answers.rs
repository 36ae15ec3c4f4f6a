//! Answers of the mock provider, parsed from its script.

/// One answer of the script.
#[derive(Debug, Default)]
pub struct Answer {
    pub(super) sees: Vec<(bool, String)>,
    pub(super) has: Vec<(bool, String)>,
    pub(super) without_tools: bool,
    pub(super) conversation: Option<String>,
    pub(super) anew: bool,
    pub(super) moves: Vec<Move>,
}

#[derive(Debug)]
pub(super) enum Move {
    Text(String),
    Reasoning(String),
    Call(String, String),
    Usage(u64, u64),
    Finish(String),
    Status(u16, Option<String>, String),
    Raw(String),
    Whole(String, String),
    Pause,
    Meet(usize),
    Cut,
    Hang,
}

/// Reads the body of a `model` block.
pub fn script(text: &str) -> Result<Vec<Answer>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut answers = vec![Answer::default()];
    for line in text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
    {
        let answer = answers.last_mut().unwrap();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let step = match word {
            "---" => {
                answers.push(Answer::default());
                continue;
            }
            "sees:" => {
                answer.sees.push((true, string(rest)?));
                continue;
            }
            "has:" => {
                answer.has.push((true, rest.to_owned()));
                continue;
            }
            "has" if rest.starts_with("not: ") => {
                answer.has.push((false, rest[5..].to_owned()));
                continue;
            }
            "sees" if rest.starts_with("not: ") => {
                answer.sees.push((false, string(&rest[5..])?));
                continue;
            }
            "in:" => {
                answer.conversation = Some(string(rest)?);
                continue;
            }
            "without" if rest == "tools" => {
                answer.without_tools = true;
                continue;
            }
            "begins" if rest == "anew" => {
                answer.anew = true;
                continue;
            }
            "text:" => Move::Text(string(rest)?),
            "reasoning:" => Move::Reasoning(string(rest)?),
            "call" => {
                let (name, arguments) = rest.split_once(' ').unwrap_or((rest, "{}"));
                Move::Call(name.into(), arguments.into())
            }
            "usage" => {
                let (input, output) = rest.split_once(' ').ok_or("usage wants two numbers")?;
                let number = |text: &str| text.parse().map_err(|e| format!("usage {text}: {e}"));
                Move::Usage(number(input)?, number(output)?)
            }
            "finish" => Move::Finish(rest.into()),
            "status" => {
                let (code, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                let code = code.parse().map_err(|e| format!("status {code}: {e}"))?;
                match rest
                    .strip_prefix("retry-after ")
                    .map(|rest| rest.split_once(' ').unwrap_or((rest, "")))
                {
                    Some((seconds, body)) => Move::Status(code, Some(seconds.into()), body.into()),
                    None => Move::Status(code, None, rest.into()),
                }
            }
            "raw" => Move::Raw(rest.into()),
            "whole" => {
                let (kind, body) = rest.split_once(' ').unwrap_or((rest, ""));
                Move::Whole(kind.into(), body.into())
            }
            "pause" => Move::Pause,
            "meet" => Move::Meet(
                rest.trim()
                    .parse()
                    .map_err(|e| format!("meet {rest}: {e}"))?,
            ),
            "cut" => Move::Cut,
            "hang" => Move::Hang,
            _ => return Err(format!("the model cannot do this: {line}")),
        };
        answer.moves.push(step);
    }
    Ok(answers)
}

fn string(text: &str) -> Result<String, String> {
    if text.starts_with('"') {
        return serde_json::from_str(text).map_err(|e| format!("{text}: {e}"));
    }
    Ok(text.to_owned())
}
