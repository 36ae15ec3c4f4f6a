//! From a prompt to what is wanted: plain orders, a plan, a question, or a greeting. `sentence`
//! takes quotations out of the way, `grammar` reads each order, this file what holds them together.

use super::sentence::{Masked, is_placeholder, polite};

/// What a prompt wants.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Intent {
    /// A greeting, or "what can you do".
    Help,
    /// A word of thanks, or "go on".
    Nothing,
    /// Orders, done one after the other. With a plan shown, when asked for or when there are many.
    Orders { orders: Vec<Item>, planned: bool },
    /// A plan for something that this model cannot do itself.
    Plan { goal: String, question: Question },
    /// Everything else.
    Question(Question),
}

/// One order and the words it was given in.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    /// The user's words, for the plan.
    pub(super) words: String,
    /// What to do.
    pub(super) order: Order,
}

/// A plain order.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Order {
    /// Show a file, or some of its lines (both ends included).
    Read { path: String, lines: Option<(u64, u64)> },
    /// Show what is in a directory; none is the session's.
    List { path: Option<String> },
    /// Find files by name.
    Glob { pattern: String, path: Option<String> },
    /// Find a text in files.
    Search { text: String, path: Option<String> },
    /// Run a command.
    Run { command: String },
    /// Change a text in a file.
    Replace { old: String, new: String, path: String, once: bool },
    /// Make a file; an existing one is changed only when `overwrite`.
    Create { path: String, content: String, overwrite: bool },
    /// Add to the end of a file.
    Append { path: String, text: String },
    /// A question among orders.
    Ask(Question),
    /// An order with something missing: what to say about it.
    Unclear(&'static str),
}

/// A question.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Question {
    /// In the user's words.
    pub(super) text: String,
    /// Its words without code spans and the like.
    pub(super) plain: String,
    /// Code spans and quotations in it that are no paths.
    pub(super) literals: Vec<String>,
    /// Paths named in it.
    pub(super) paths: Vec<String>,
    /// Asks for work that needs understanding: to write, mend or change something.
    pub(super) work: bool,
    /// Asks what all of this is.
    pub(super) overview: bool,
    /// Asks for prose rather than code.
    pub(super) prose: bool,
    /// Asks how or where something happens: functions answer that.
    pub(super) how: bool,
    /// Asks what something is: types answer that.
    pub(super) what: bool,
}

/// More orders than this in one prompt are not taken as orders.
pub(super) const MOST_ORDERS: usize = 12;

/// Reads a prompt. `attached`: files came with it.
pub(super) fn parse(prompt: &str, attached: bool) -> Intent {
    let masked = Masked::new(prompt);
    let sentence = polite(masked.text.trim());
    if let Some(intent) = small_talk(&masked, sentence, attached) {
        return intent;
    }
    let lower = sentence.to_ascii_lowercase();
    for start in
        ["plan:", "make a plan to ", "make a plan for ", "make a plan:", "make a plan ", "plan to ", "plan how to "]
    {
        if let Some(goal) = lower.strip_prefix(start).map(|rest| &sentence[sentence.len() - rest.len()..]) {
            let pieces = split(goal);
            let items: Vec<Vec<Item>> =
                pieces.iter().take(MOST_ORDERS + 1).filter_map(|piece| masked.items(piece)).collect();
            // A plan in so many words may hold steps that are questions, once one step is an order.
            if !items.is_empty() && pieces.len() <= MOST_ORDERS && (start.ends_with(':') || items.len() == pieces.len())
            {
                let item = |piece: &String| masked.items(piece).unwrap_or_else(|| vec![masked.ask(piece)]);
                let orders = pieces.iter().flat_map(item).collect();
                return Intent::Orders { orders, planned: true };
            }
            let question = masked.question(goal.trim());
            return Intent::Plan { goal: masked.words(goal.trim()), question };
        }
    }
    let pieces = split(sentence);
    let items: Vec<Vec<Item>> = pieces.iter().take(MOST_ORDERS + 1).filter_map(|piece| masked.items(piece)).collect();
    if !items.is_empty() && items.len() == pieces.len() && items.len() <= MOST_ORDERS {
        let items: Vec<Item> = items.into_iter().flatten().collect();
        let planned = items.len() >= 3;
        return Intent::Orders { orders: items, planned };
    }
    if let Some(orders) = masked.items(sentence) {
        return Intent::Orders { orders, planned: false };
    }
    Intent::Question(masked.question(sentence))
}

/// Greetings, thanks, nothing at all.
fn small_talk(masked: &Masked, sentence: &str, attached: bool) -> Option<Intent> {
    let bare = sentence.to_ascii_lowercase();
    let bare = bare.trim_matches(|c: char| !c.is_alphanumeric() && !is_placeholder(c));
    let is = |list: &[&str]| list.contains(&bare);
    if bare.is_empty() && masked.spans.is_empty() {
        return Some(if attached { Intent::Question(Question::default()) } else { Intent::Help });
    }
    if is(&[
        "hello",
        "hi",
        "hey",
        "hello there",
        "hi there",
        "good morning",
        "good evening",
        "help",
        "help me",
        "test",
        "ping",
    ]) || is(&[
        "who are you",
        "what are you",
        "what can you do",
        "what can i do",
        "how do i use you",
        "how does this work",
        "moin",
    ]) {
        return Some(Intent::Help);
    }
    let thanks = is(&["thanks", "thank you", "ok", "okay", "great", "good", "yes", "no", "bye", "continue", "go on"])
        || bare.starts_with("thanks ")
        || bare.starts_with("thank you ")
        || bare.starts_with("continue if you have next steps");
    thanks.then_some(Intent::Nothing)
}

/// Cuts a prompt where one order ends and the next begins.
fn split(sentence: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut numbered = 0;
    for line in sentence.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let unnumbered = list_item(line);
        if unnumbered.is_some() {
            numbered += 1;
        }
        lines.push(unnumbered.unwrap_or(line).to_owned());
    }
    // A line before a list only announces it ("Do this:").
    if numbered >= 1 && lines.len() == numbered + 1 && lines[0].ends_with(':') {
        lines.remove(0);
    }
    let mut pieces = lines;
    for separator in [";", ", and then ", " and then ", ", then ", " then ", ", after that ", ". "] {
        pieces = pieces.iter().flat_map(|piece| cut_at(piece, separator)).collect();
    }
    let trimmed = pieces.iter().map(|piece| polite(piece.trim()).trim_end_matches(['.', ';', ',']).trim().to_owned());
    trimmed.filter(|piece| !piece.is_empty()).collect()
}

/// Splits without regard to case, keeping the text as it is.
pub(super) fn cut_at(text: &str, separator: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let lower = text.to_ascii_lowercase();
    for (at, found) in lower.match_indices(separator) {
        if at >= start {
            pieces.push(text[start..at].to_owned());
            start = at + found.len();
        }
    }
    pieces.push(text[start..].to_owned());
    pieces
}

/// The words of a list's item: `1. x`, `2) x`, `- x`, `* x`.
fn list_item(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")) {
        return Some(rest.trim());
    }
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let rest = line[digits..].strip_prefix(". ").or_else(|| line[digits..].strip_prefix(") "))?;
    (1..=3).contains(&digits).then(|| rest.trim())
}
