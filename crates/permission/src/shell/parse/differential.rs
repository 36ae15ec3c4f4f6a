//! Whether bash reads what is read here in the same way. Lines are made by a grammar that is wider
//! than ours, and by spoiling lines that are known; those that can be read here are printed as bash
//! prints them, and `bash --pretty-print` prints what it has read. bash runs nothing then.
//!
//! A line is the body of a function, so that every command gets a line of its own, and that many
//! lines fit into one process. Blanks are sown between words: in a word they stay, between words
//! they do not, so that where a word ends can be seen.
//!
//! `ADJUTANT_BASH_LINES` is how many lines are made, `ADJUTANT_BASH_SEED` where they begin.

#![expect(
    clippy::disallowed_methods,
    reason = "a test that starts bash and is told by the environment how long to run"
)]

mod nodes;
mod print;

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::script;

/// What a line came to.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Same,
    /// bash refuses it: nothing runs.
    Refused,
    Different {
        ours: String,
        theirs: String,
    },
}

/// A bash that reads no settings of the machine.
fn program() -> Command {
    let mut bash = Command::new("bash");
    bash.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("LC_ALL", "C.UTF-8");
    bash
}

/// Whether this bash prints what it reads as the versions from 5.2 on do. It is told where it does
/// not.
fn bash() -> bool {
    let output = program().args(["-c", "echo $((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1]))"]).output();
    let version = output.ok().and_then(|output| String::from_utf8_lossy(&output.stdout).trim().parse::<u32>().ok());
    let found = version == Some(502);
    if !found {
        let _ = writeln!(std::io::stderr(), "skipped: no bash 5.2 to compare with");
    }
    found
}

/// What bash prints of a text it reads; nothing of it runs.
fn pretty(text: &str) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let mut bash = program();
    bash.args(["--norc", "--noprofile", "--pretty-print"]).arg(file.path());
    let output = bash.stdin(Stdio::null()).stderr(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A line as we read it; none where we do not, or cannot print it.
fn ours(line: &str) -> Option<String> {
    print::function("zq", &script(line, 0).ok()?)
}

/// Lines with what we make of them, against what bash does: as many at once as bash reads alike.
fn compare(lines: &[(String, String)]) -> Vec<Outcome> {
    let function = |line: &str| format!("zq() {{\n{line}\n}}\n");
    let mut outcomes = vec![];
    while let Some(rest) = lines.get(outcomes.len()..).filter(|rest| !rest.is_empty()) {
        let printed = pretty(&rest.iter().map(|(line, _)| function(line)).collect::<String>());
        let mut left = printed.as_str();
        for (line, wanted) in rest {
            if let Some(next) = left.strip_prefix(wanted.as_str()) {
                left = next;
                outcomes.push(Outcome::Same);
                continue;
            }
            // The others may have been swallowed: this one alone, and then on from the next. At the end of what it
            // reads bash prints an empty line.
            let theirs = pretty(&function(line));
            outcomes.push(if theirs.strip_prefix(wanted.as_str()).is_some_and(|rest| rest.trim().is_empty()) {
                Outcome::Same
            } else if theirs.trim().is_empty() {
                Outcome::Refused
            } else {
                Outcome::Different { ours: wanted.clone(), theirs }
            });
            break;
        }
    }
    outcomes
}

/// A small generator of numbers, the same on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap_or_default() % sides
    }

    fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.roll(from.len())]
    }
}

const FRAGMENTS: [&str; 108] = [
    "'",
    "\"",
    "\\",
    "$",
    "`",
    "$(",
    ")",
    "(",
    "${",
    "}",
    "{",
    "[",
    "]",
    "((",
    "))",
    "#",
    " #",
    ";",
    "&",
    "|",
    "<",
    ">",
    "<<",
    "<<-",
    "<<<",
    "\n",
    "\t",
    " ",
    "  ",
    "=",
    "a=(",
    "\\\n",
    "$'",
    "E",
    "\nE\n",
    "\nE)\n",
    "<<E",
    "!",
    " ! ",
    "{ ",
    "; }",
    "[[ ",
    " ]]",
    "if ",
    "; then ",
    "; fi",
    "; do ",
    "; done",
    "case x in ",
    " esac",
    ";;",
    "touch  PWN",
    "~",
    "*",
    "-",
    ":",
    "/",
    "@",
    "+=",
    "&>",
    ">&",
    "2>&1",
    "$((",
    "1",
    "x",
    "%",
    "^",
    ",",
    "é",
    "\\c",
    "\\x41",
    "$'\\x41'",
    "'\"'",
    "\"'\"",
    "${x#",
    "${x:-",
    "\"${x",
    "<(",
    ">(",
    "&&",
    "||",
    "|&",
    "{v}>",
    ">&-",
    "in",
    "do",
    "time ",
    "function f ",
    "f() ",
    "a[",
    "a[0]=",
    "([0]=",
    "declare a=(1)",
    "$[",
    "${!",
    "${#",
    "?",
    "+",
    "2",
    "09",
    "<>",
    ">|",
    "\\'",
    "\\\"",
    "\\}",
    "\r",
    "coproc ",
    "select x in a; do ",
];

const WORDS: [&str; 48] = [
    "ls",
    "touch",
    "PWN",
    "a",
    "-la",
    "x=1",
    "x+=2",
    "a=(1  2)",
    "a[0]=1",
    "'q  q'",
    "\"d  d\"",
    "\"$x  ${y}\"",
    "$x",
    "${x:-d  d}",
    "\"${x%\"/\"*}\"",
    "${x#*/}",
    "${#x}",
    "${a[@]}",
    "${a[0]}",
    "${x: 1:2}",
    "$((1  + 2))",
    "$'\\n\\x41'",
    "`b  c`",
    "\"`b  c`\"",
    "a\\ b",
    "\\#",
    "#x",
    "a#b",
    "*.rs",
    "{a,b}",
    "~/x",
    "[",
    "]",
    "if",
    "do",
    "in",
    "}",
    "{",
    "é",
    "\\'",
    "\"\\\"\"",
    "$",
    "\"a$\"",
    "--x='y  z'",
    "declare",
    "a[$x]+=1",
    "a[$(b  a[1]=2)]=1",
    "<(b  c)",
];

/// A line of a language that is wider than the one read here.
fn made(dice: &mut Dice, depth: usize) -> String {
    let mut line = String::new();
    for at in 0..=dice.roll(3) {
        if at > 0 {
            line +=
                dice.pick(&[";", " ;  ", " && ", "||", "\n", " & ", " |  ", "|& ", "\n\n  ", " # c  c\n", " \\\n ;"]);
        }
        command(dice, depth, &mut line);
    }
    if dice.roll(8) == 0 {
        line += dice.pick(&[";", " &", "\n", " # c ' \"", " ;\n"]);
    }
    line
}

fn command(dice: &mut Dice, depth: usize, line: &mut String) {
    let kind = if depth == 0 { 0 } else { dice.roll(24) };
    let list = |dice: &mut Dice| made(dice, depth - 1);
    let text = match kind {
        12 => format!("({})", list(dice)),
        13 => format!("{{  {}\n}}", list(dice)),
        14 => format!("if {}\nthen  {}\nfi", list(dice), list(dice)),
        15 => format!(
            "if {}\nthen {}\nelif {}\nthen {}\nelse  {}\nfi",
            list(dice),
            list(dice),
            list(dice),
            list(dice),
            list(dice)
        ),
        16 => format!("{} {}\ndo {}\ndone", dice.pick(&["while", "until"]), list(dice), list(dice)),
        17 => format!("for x {}do {}\ndone", dice.pick(&["in a  b; ", "in \"$@\"\n", "", "; ", "\n"]), list(dice)),
        18 => format!(
            "case $x in\n {}) {}\n;; (c  | d) {}\n;;\nesac",
            dice.pick(&["a", "a | b", "*", "'x  y'"]),
            list(dice),
            list(dice)
        ),
        19 => format!("f() {{ {}\n}}", list(dice)),
        20 => format!(
            "[[  {}  ]]",
            dice.pick(&["-f  x", "$x == a*", "a", "! a && b", "( a || -n b )", "a  < b", "$x =~ ^a", "a -eq  1"])
        ),
        21 => format!("{} {}", dice.pick(&["!", "time", "time  -p", "! !"]), list(dice)),
        22 => heredoc(dice),
        _ => {
            for at in 0..=dice.roll(4) {
                line.push_str(if at > 0 { dice.pick(&[" ", "  ", "\t", " \\\n  "]) } else { "" });
                match dice.roll(if depth > 0 { 12 } else { 10 }) {
                    10 => {
                        let inner = list(dice);
                        let _ = write!(
                            line,
                            "{}",
                            match dice.roll(5) {
                                0 => format!("\"a  $({inner})\""),
                                1 => format!("${{x:-$({inner})}}"),
                                2 => format!("<({inner})"),
                                3 => format!("x=$({inner})"),
                                _ => format!("$({inner})"),
                            }
                        );
                    }
                    11 | 9 => {
                        let sign = dice.pick(&[
                            ">f",
                            "<  f",
                            "2>&1",
                            ">&2",
                            "&>f",
                            ">>f",
                            "<<<w",
                            "2>/dev/null",
                            "{v}>f",
                            ">|f",
                            ">&-",
                            "<>f",
                            ">&f",
                        ]);
                        line.push_str(sign);
                    }
                    _ => line.push_str(dice.pick(&WORDS)),
                }
            }
            return;
        }
    };
    line.push_str(&text);
    if kind != 22 && kind != 21 && dice.roll(4) == 0 {
        line.push_str(dice.pick(&["  >f", " 2>&1", " < x", " <<<y"]));
    }
}

fn heredoc(dice: &mut Dice) -> String {
    const BODIES: [&str; 12] = [
        "",
        "a  b\n",
        "\tx $(b  c)\n",
        "$x \\\n y\n",
        "'\n",
        "E)\n",
        " E\n",
        "\\\\\n",
        "\"`a`\n",
        "E\\\n)\n",
        "\\\nE\n",
        "x\\\n\tE\n",
    ];
    let (strip, quote) = (dice.pick(&["", "-"]), dice.pick(&["", "'", "\"", "\\"]));
    let close = if quote == "\\" { "" } else { quote };
    let after = dice.pick(&["", " ; b", " | b", " >f", " && b <<'F'\nz\nE\n\"\nF", "  & b <<F\nE\n\nF"]);
    format!("cat  <<{strip}{quote}E{close}{after}\n{}E\n", dice.pick(&BODIES))
}

/// A line with some letters left out, doubled, moved, or put in.
fn spoiled(dice: &mut Dice, line: &str, other: &str) -> String {
    let mut line = line.to_owned();
    let place = |dice: &mut Dice, line: &str| {
        let at = dice.roll(line.len() + 1);
        (0..=at).rev().find(|at| line.is_char_boundary(*at)).unwrap_or_default()
    };
    for _ in 0..=dice.roll(3) {
        let at = place(dice, &line);
        match dice.roll(8) {
            0 => drop(line.pop()),
            1 if at < line.len() => drop(line.remove(at)),
            2 => {
                let end = place(dice, &line);
                let part = line[at.min(end)..at.max(end)].to_owned();
                line.insert_str(at, &part);
            }
            3 => {
                let (from, to) = (place(dice, other), place(dice, other));
                line.insert_str(at, &other[from.min(to)..from.max(to)]);
            }
            4 => {
                let end = place(dice, &line);
                if end.abs_diff(at) < 8 {
                    line.replace_range(at.min(end)..at.max(end), "");
                }
            }
            _ => line.insert_str(at, dice.pick(&FRAGMENTS)),
        }
    }
    line
}

/// The commands of a table.
fn rows(table: &str) -> Vec<String> {
    let strings = table.split("\"\"\"").skip(1).step_by(2);
    strings.filter_map(|text| serde_json::from_str(&format!("\"{}\"", text.replace("\"\"", "\""))).ok()).collect()
}

fn seeds() -> Vec<String> {
    let mut seeds = rows(include_str!("../../../../../editor-tests/data/permission_cases.csv"));
    seeds.extend(rows(include_str!("../../../../../editor-tests/data/permission_cases_more.csv")));
    seeds.extend(super::tests::LINES.iter().map(|(line, _)| (*line).to_owned()));
    seeds
}

#[test]
fn bash_reads_the_same() {
    if !bash() {
        return;
    }
    let set = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = set("ADJUTANT_BASH_LINES").unwrap_or(6_000);
    let mut dice = Dice(set("ADJUTANT_BASH_SEED").unwrap_or(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let seeds = seeds();
    assert!(seeds.len() > 300, "{}", seeds.len());
    let (mut batch, mut left) = (vec![], count);
    let (mut read, mut refused, mut different) = (0, vec![], vec![]);
    let mut known = seeds.iter();
    while left > 0 || !batch.is_empty() {
        while left > 0 && batch.len() < 400 {
            left -= 1;
            let line = known.next().cloned().unwrap_or_else(|| {
                let depth = 1 + dice.roll(2);
                let line =
                    if dice.roll(3) == 0 { seeds[dice.roll(seeds.len())].clone() } else { made(&mut dice, depth) };
                let other = seeds[dice.roll(seeds.len())].clone();
                if dice.roll(4) == 0 { line } else { spoiled(&mut dice, &line, &other) }
            });
            if let Some(wanted) = ours(&line) {
                batch.push((line, wanted));
            }
        }
        for ((line, _), outcome) in batch.iter().zip(compare(&batch)) {
            read += 1;
            match outcome {
                Outcome::Same => {}
                Outcome::Refused => refused.push(line.clone()),
                Outcome::Different { ours, theirs } => different.push((line.clone(), ours, theirs)),
            }
        }
        batch.clear();
        if different.len() + refused.len() > 40 {
            break;
        }
    }
    let mut report = format!("{} lines, {read} read, {} refused by bash\n", count - left, refused.len());
    different.sort_by_key(|(line, ..)| line.len());
    refused.sort_by_key(String::len);
    for line in refused.iter().take(30) {
        let _ = writeln!(report, "refused: {line:?}");
    }
    for (line, ..) in different.iter().skip(12) {
        let _ = writeln!(report, "different: {line:?}");
    }
    for (line, ours, theirs) in different.iter().take(12) {
        let _ = writeln!(report, "different: {line:?}\n{line}\n-- ours\n{ours}-- bash\n{theirs}");
    }
    let _ = std::io::stderr().write_all(report.as_bytes());
    // What bash refuses runs nothing, but a here-doc that it ends elsewhere looks like that too.
    assert!(different.is_empty() && refused.is_empty(), "{report}");
    assert!(read * 5 > count - left, "too few lines can be read: {report}");
}
