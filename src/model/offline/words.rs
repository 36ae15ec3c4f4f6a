//! The words of a question that are worth searching for, and how to recognise them in code: a
//! question says "session ids", the code says `SessionId`, `session_id` or "the ids of sessions".

/// One thing a question is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Term {
    /// As the user wrote it.
    pub(super) shown: String,
    /// What all of its forms begin with, lower case.
    pub(super) stem: String,
    /// Stems of words that programmers use for the same.
    pub(super) kin: Vec<String>,
    /// Written as an identifier, or in quotes: the user knows how it is spelt.
    pub(super) exact: bool,
    /// Says how something is, not what it is.
    pub(super) weak: bool,
}

/// What a question is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Terms {
    /// Each once, in the order of the question.
    pub(super) terms: Vec<Term>,
    /// Which terms stand next to each other, by position; identifiers of several words count.
    pub(super) pairs: Vec<(usize, usize)>,
    /// Identifiers and quotations as they were written.
    pub(super) literals: Vec<String>,
}

/// More words than this make a search vague, not precise.
const MOST_TERMS: usize = 8;
const MOST_LITERALS: usize = 4;

/// Words that carry no meaning of their own in a question about code.
const STOP: &str = "a about above after again all also am an and any anybody anyone are as at away be because been \
    before being below between both but by can cannot come comes could did do does doing done down during each either \
    else ever every everything explain few first for from further give given go goes had happen happens has have having \
    he her here hers him his how however i if in inside into is it its itself just kind know let like look looks make \
    sure me mean means might more most much must my need no nor not now of off often on once one only onto or other our \
    out over own please describe same say see shall she should show so some something sort such tell than thank thanks \
    that the their them then there these they thing things this those though through to together too under until up \
    upon us very via want wants was way we well were what when where whether which while who whole whom whose why will \
    with within without would yes yet you your s t re ve ll d m don doesn didn isn aren summarize summarise \
    understand try currently exactly actually really get gets got";

/// Words about code as such: searched for only when nothing else is left.
const VAGUE: &str = "code codebase file files function functions method methods class classes implement implements \
    implemented implementation define defines defined definition declared located location live lives use uses used \
    using usage called calls happening work works working place places part parts project repo repository program \
    source directory folder module modules object value values variable responsible logic behaviour behavior handled \
    detail details example purpose role bug issue problem feature change changes new add fix update improve refactor \
    write rewrite support mention mentions mentioned contain contains containing refer refers reference references occur \
    occurs appear appears";

/// Words that say how something is: they count for less.
const WEAK: &str = "long short big small large little many several different correct right wrong old simple single main \
    real good bad fast slow current possible available certain specific various other next previous";

/// Words that programmers use for one another.
const KIN: &[&str] = &[
    "make made create generate build built construct fresh new",
    "cut truncate trim shorten limit",
    "delete remove erase drop",
    "start begin launch spawn",
    "stop end cancel abort kill",
    "error failure fault fail",
    "config configuration setting option",
    "check verify validate judge",
    "parse decode",
    "encode serialize",
    "send sent emit post",
    "save store persist kept keep stored",
    "allow permit grant",
    "deny refuse reject forbid",
    "choose chosen select pick",
    "repeat retry again",
    "find found lookup search",
];

/// Whether a word carries no meaning of its own.
pub(super) fn is_stop(word: &str) -> bool {
    STOP.split_whitespace().any(|stop| stop == word)
}

fn is_vague(word: &str) -> bool {
    VAGUE.split_whitespace().any(|vague| vague == word)
}

/// Cuts an English ending, so that the forms of a word agree. What is left is not always a word.
pub(super) fn stem(word: &str) -> String {
    let mut word = word.to_lowercase();
    if !word.is_ascii() {
        return word;
    }
    let cut = |word: &mut String, ending: &str, least: usize| {
        let fits = word.len() >= least && word.ends_with(ending);
        if fits {
            word.truncate(word.len() - ending.len());
        }
        fits
    };
    if cut(&mut word, "ies", 5) {
        word.push('y');
    } else if !word.ends_with("ss") && !word.ends_with("us") && !word.ends_with("is") {
        let sibilant = ["ches", "shes", "xes", "zes", "sses"].iter().any(|ending| word.ends_with(ending));
        let ending = if sibilant { "es" } else { "s" };
        cut(&mut word, ending, 3);
    }
    let verbal = cut(&mut word, "ing", 6) || cut(&mut word, "ed", 5) || cut(&mut word, "er", 6);
    if verbal {
        let mut ending = word.chars().rev();
        if let (Some(last), Some(before)) = (ending.next(), ending.next())
            && last == before
            && !"aeioulsz".contains(last)
        {
            word.pop();
        }
    } else {
        let _ = cut(&mut word, "ion", 9);
    }
    cut(&mut word, "e", 4);
    word
}

/// The words inside a line of code or prose, lower case: `SessionId`, `session_id` and "session id"
/// all give `session`, `id`.
pub(super) fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut token = String::new();
    let mut chars = text.chars().peekable();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        if !c.is_alphanumeric() {
            push(&mut tokens, &mut token);
        } else {
            let hump = c.is_uppercase()
                && (before.is_lowercase()
                    || before.is_numeric()
                    || (before.is_uppercase() && chars.peek().is_some_and(|next| next.is_lowercase())));
            if hump {
                push(&mut tokens, &mut token);
            }
            token.extend(c.to_lowercase());
        }
        before = c;
    }
    push(&mut tokens, &mut token);
    tokens
}

fn push(tokens: &mut Vec<String>, token: &mut String) {
    if !token.is_empty() {
        tokens.push(std::mem::take(token));
    }
}

/// Whether a word of the code is a form of a stem.
fn is_form(token: &str, token_stem: &str, stem: &str) -> bool {
    token_stem == stem || (stem.len() >= 4 && token.starts_with(stem) && token.len() <= stem.len() + 5)
}

/// What was found of a question in some text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Found {
    /// One bit per term, found in its own words.
    pub(super) own: u32,
    /// One bit per term, found at least in a related word.
    pub(super) kin: u32,
    /// How many of the pairs stand together.
    pub(super) pairs: usize,
}

impl Terms {
    /// Reads a question. `literals` are the code spans and quotations in it.
    pub(super) fn of(question: &str, literals: &[String]) -> Self {
        let kept = literals.iter().filter(|l| useful_literal(l)).take(MOST_LITERALS).cloned().collect();
        let mut terms = Self { literals: kept, ..Self::default() };
        for literal in literals.iter().take(MOST_LITERALS) {
            terms.name(literal);
        }
        let words: Vec<&str> = question
            .split(|c: char| c.is_whitespace() || ",;!?\"()[]{}<>=*`".contains(c))
            .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_'))
            .filter(|word| !word.is_empty())
            .collect();
        for vague_too in [false, true] {
            let mut last: Option<usize> = None;
            for word in &words {
                let lower = word.trim_end_matches("'s").trim_end_matches("\u{2019}s").to_lowercase();
                if is_stop(&lower) || (!vague_too && is_vague(&lower)) {
                    continue;
                }
                if is_identifier(word) {
                    if terms.literals.len() < MOST_LITERALS && !terms.literals.iter().any(|l| l == word) {
                        terms.literals.push((*word).to_owned());
                    }
                    last = terms.name(word);
                    continue;
                }
                // `kilo-byte`, `read/write`: each half is a word of its own.
                for half in tokens(&lower) {
                    if is_stop(&half) || (half.len() < 2 && half.is_ascii()) {
                        continue;
                    }
                    let at = terms.add(&half, false);
                    terms.pair(last, at);
                    last = at.or(last);
                }
            }
            if !terms.terms.is_empty() {
                break;
            }
        }
        terms
    }

    /// Takes an identifier apart: its words are terms that belong together.
    fn name(&mut self, name: &str) -> Option<usize> {
        let mut last = None;
        for token in tokens(name).into_iter().filter(|t| t.chars().count() > 1).take(5) {
            let at = self.add(&token, true);
            self.pair(last, at);
            last = at.or(last);
        }
        last
    }

    fn add(&mut self, word: &str, exact: bool) -> Option<usize> {
        let stem = stem(word);
        if let Some(at) = self.terms.iter().position(|term| term.stem == stem) {
            return Some(at);
        }
        if self.terms.len() >= MOST_TERMS || stem.is_empty() || stem.chars().count() > 40 {
            return None;
        }
        let kin = KIN
            .iter()
            .filter(|family| family.split(' ').any(|member| self::stem(member) == stem))
            .flat_map(|family| family.split(' ').map(self::stem))
            .filter(|other| *other != stem)
            .collect();
        let weak = WEAK.split_whitespace().any(|weak| weak == word);
        self.terms.push(Term { shown: word.to_lowercase(), stem, kin, exact, weak });
        Some(self.terms.len() - 1)
    }

    fn pair(&mut self, first: Option<usize>, second: Option<usize>) {
        if let (Some(first), Some(second)) = (first, second)
            && first != second
            && !self.pairs.contains(&(first, second))
        {
            self.pairs.push((first, second));
        }
    }

    /// Whether there is nothing to search for.
    pub(super) fn is_empty(&self) -> bool {
        self.terms.is_empty() && self.literals.is_empty()
    }

    /// Which terms occur in a text.
    pub(super) fn found(&self, text: &str) -> Found {
        let mut found = Found::default();
        let tokens = tokens(text);
        let mut before: Option<u32> = None;
        for token in &tokens {
            let token_stem = stem(token);
            let mut here = 0;
            for (at, term) in self.terms.iter().enumerate() {
                if is_form(token, &token_stem, &term.stem) {
                    here |= 1 << at;
                } else if term.kin.contains(&token_stem) {
                    found.kin |= 1 << at;
                }
            }
            if let Some(before) = before {
                let together = |(a, b): &&(usize, usize)| {
                    (before >> a & 1 == 1 && here >> b & 1 == 1) || (before >> b & 1 == 1 && here >> a & 1 == 1)
                };
                found.pairs += self.pairs.iter().filter(together).count();
            }
            found.own |= here;
            before = Some(here);
        }
        found.kin |= found.own;
        found
    }

    /// A regular expression for lines that are probably to the point: definitions named after a
    /// term, two terms on one line, terms side by side, and what was quoted.
    pub(super) fn precise(&self) -> String {
        let any = self.alternation(false);
        let mut ways: Vec<String> = self.literals.iter().map(|literal| escape(literal)).collect();
        if !any.is_empty() {
            ways.push(format!(
                r"\b(fn|struct|enum|trait|type|const|static|class|interface|def|func|function|impl|macro_rules!|record|object|module|define)\b[^=;]{{0,60}}({any})"
            ));
        }
        let terms = self.terms.iter().take(5);
        for (at, first) in terms.clone().enumerate() {
            for second in terms.clone().skip(at + 1) {
                let (first, second) = (pattern(first), pattern(second));
                ways.push(format!("({first}).*({second})"));
                ways.push(format!("({second}).*({first})"));
            }
        }
        format!("(?i){}", ways.join("|"))
    }

    /// A regular expression for every line with a term in it; with `kin`, related words count.
    pub(super) fn broad(&self, kin: bool) -> String {
        let mut ways = vec![self.alternation(kin)];
        ways.extend(self.literals.iter().map(|literal| escape(literal)));
        ways.retain(|way| !way.is_empty());
        format!("(?i){}", ways.join("|"))
    }

    /// A glob for files named after a term; none where no term would make a useful one.
    pub(super) fn names(&self) -> Option<String> {
        let mut names = Vec::new();
        for term in &self.terms {
            let plain = term.stem.chars().all(|c| c.is_ascii_alphanumeric());
            if term.stem.len() < 3 || !plain {
                continue;
            }
            let stem = term.stem.trim_end_matches('y');
            let (head, tail) = stem.split_at(1);
            names.push(stem.to_owned());
            names.push(format!("{}{tail}", head.to_uppercase()));
        }
        names.dedup();
        match names.as_slice() {
            [] => None,
            [one] => Some(format!("**/*{one}*")),
            many => Some(format!("**/*{{{}}}*", many.join(","))),
        }
    }

    fn alternation(&self, kin: bool) -> String {
        let mut ways: Vec<String> = Vec::new();
        for term in &self.terms {
            ways.push(pattern(term));
            if kin {
                ways.extend(term.kin.iter().filter(|stem| stem.len() >= 4).map(|stem| escape(stem)));
            }
        }
        ways.dedup();
        ways.join("|")
    }

    /// The words for people, as inline code with commas between.
    pub(super) fn listed(&self) -> String {
        let mut shown: Vec<String> = self.literals.iter().map(|literal| quoted(literal)).collect();
        for term in self.terms.iter().filter(|term| !term.exact || self.literals.is_empty()) {
            shown.push(quoted(&term.shown));
        }
        shown.join(", ")
    }
}

/// Inline code, whatever is inside: one line, with a fence longer than any run of backticks in it.
pub(super) fn quoted(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat(longest + 1);
    let pad = if longest > 0 { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

fn useful_literal(literal: &str) -> bool {
    let length = literal.chars().count();
    (2..=120).contains(&length) && !literal.contains('\n') && literal.chars().any(char::is_alphanumeric)
}

/// Whether a word is spelt like a name in code: `a_b`, `aB`, `A::b`, `f()`.
fn is_identifier(word: &str) -> bool {
    let inner_hump = word.chars().zip(word.chars().skip(1)).any(|(a, b)| a.is_lowercase() && b.is_uppercase());
    let snake = word.trim_matches('_').contains('_');
    (inner_hump || snake || word.contains("::")) && word.len() <= 80
}

/// The forms of a term as a regular expression. Short words would be found inside of long ones
/// ("id" in "provide"), so they must stand at an edge of a word.
fn pattern(term: &Term) -> String {
    let stem = term.stem.trim_end_matches('y');
    let stem = if stem.len() < 3 { &term.stem } else { stem };
    let escaped = escape(stem);
    if stem.chars().count() > 3 || !stem.is_ascii() {
        return escaped;
    }
    let mut hump = stem.to_owned();
    if let Some(first) = hump.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let hump = escape(&hump);
    format!(r"(\b|_){escaped}[a-z]{{0,5}}(\b|_)|(?-i:{hump}(s\b|\b|[A-Z_]))")
}

/// A text as a regular expression that matches itself.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        // Not every punctuation mark: `\<` and `\>` have a meaning of their own.
        if r"\.+*?()|[]{}^$#&-~".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems() {
        let table = [
            ("matched", "match"),
            ("matches", "match"),
            ("ids", "id"),
            ("queries", "query"),
            ("cutting", "cut"),
            ("stored", "stor"),
            ("store", "stor"),
            ("storing", "stor"),
            ("truncation", "truncat"),
            ("truncate", "truncat"),
            ("handler", "handl"),
            ("class", "class"),
            ("status", "status"),
            ("this", "this"),
            ("s", "s"),
            ("e", "e"),
            ("", ""),
            ("größen", "größen"),
        ];
        for (word, expected) in table {
            assert_eq!(stem(word), expected, "{word}");
        }
    }

    #[test]
    fn tokens_of_every_spelling() {
        let table = [
            ("SessionHandle", "session handle"),
            ("session_handle", "session handle"),
            ("sessionHandle()", "session handle"),
            ("HTTPServer2Go", "http server2 go"),
            ("the session's handle", "the session s handle"),
            ("", ""),
        ];
        for (text, expected) in table {
            assert_eq!(tokens(text).join(" "), expected, "{text}");
        }
    }

    #[test]
    fn what_a_question_is_about() {
        let table = [
            ("where is the wildcard matched?", "wildcard match"),
            ("where are session ids made?", "session id mad"),
            ("How are lines cut?", "lin cut"),
            ("what does TurnOutcome do", "turn outcom"),
            ("which files implement the store?", "stor"),
            ("how does this code work?", "cod work"),
            ("why?", ""),
        ];
        for (question, expected) in table {
            let terms = Terms::of(question, &[]);
            let stems: Vec<&str> = terms.terms.iter().map(|term| term.stem.as_str()).collect();
            assert_eq!(stems.join(" "), expected, "{question}");
        }
    }

    #[test]
    fn expressions_are_valid_and_match_every_spelling() {
        let terms = Terms::of("where are session ids made?", &[]);
        let precise = grep_regex::RegexMatcher::new(&terms.precise()).unwrap();
        let broad = grep_regex::RegexMatcher::new(&terms.broad(true)).unwrap();
        use grep_matcher_of::is_match;
        for line in ["pub struct SessionId(", "let session_id = 3;", "the session's id", "sessionIds.push(x)"] {
            assert!(is_match(&precise, line), "{line}");
        }
        assert!(!is_match(&precise, "the provider of sessions"));
        for line in ["an id", "userId", "create()", "SESSION"] {
            assert!(is_match(&broad, line), "{line}");
        }
        assert!(!is_match(&broad, "inside, provided"));
    }

    /// `grep_regex` without its trait crate as a dependency of ours.
    mod grep_matcher_of {
        pub(super) fn is_match(matcher: &grep_regex::RegexMatcher, line: &str) -> bool {
            let mut found = false;
            let sink = grep_searcher::sinks::UTF8(|_, _| {
                found = true;
                Ok(false)
            });
            grep_searcher::Searcher::new().search_slice(matcher, line.as_bytes(), sink).unwrap();
            found
        }
    }

    #[test]
    fn inline_code_of_anything() {
        for (text, expected) in [("a", "`a`"), ("a`b", "`` a`b ``"), ("a\nb", "`a b`")] {
            assert_eq!(quoted(text), expected);
        }
    }
}
