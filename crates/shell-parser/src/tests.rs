//! Lines that the parser accepts and lines that it refuses, in pairs with small differences.

use super::syntax::{List, Script, ShellCommandKind};
use super::{parse, parse_prefix};

/// A line, and its simple commands as they are written, in order; `None` if the parser refuses it.
pub(super) const LINES: &[(&str, Option<&str>)] = &[
    ("ls -la", Some("ls -la")),
    ("a; b & c\nd", Some("a|b|c|d")),
    ("a && b || c", Some("a|b|c")),
    ("a | b |& c", Some("a|b|c")),
    ("! a", Some("a")),
    ("a | ! b", None),
    ("time -p a", Some("a")),
    ("x=1 if", None),
    (
        "if a; then b; elif c; then d; else e; fi",
        Some("a|b|c|d|e"),
    ),
    ("if\\\n a; then b; fi", None),
    ("while a; do b; done < f", Some("a|b")),
    ("for x in a b; do c; done", Some("c")),
    ("for x; do a; done", Some("a")),
    ("for x\n ; do a; done", None),
    ("for x in a; { c; }", None),
    ("case x in a|b) c;; (d) e;; esac", Some("c|e")),
    ("case x in a) c;& d) e;; esac", None),
    ("{ a; }; (b)", Some("a|b")),
    ("( (a) )", Some("a")),
    ("{ { b; } }; c", Some("b|c")),
    ("{ a;{ b; } > f }; c", None),
    ("{ a;{ b; } > f; }; c", Some("a|b|c")),
    ("if a; then (b) < f fi", None),
    ("{ f() { b; } > f }; c", None),
    ("{ coproc { b; } > f }; c", None),
    ("( (b) > f )", Some("b")),
    ("((a) )", None),
    ("f() { a; }; function g { b; }", Some("a|b")),
    ("f() a", None),
    ("coproc N { a; }", Some("a")),
    // Comments, and text that only looks like one.
    ("a # b; c", Some("a")),
    ("a#b; c", Some("a#b|c")),
    ("a=(1) #; touch PWN", Some("a=(1)")),
    ("a=(1)#; touch PWN", None),
    ("declare a=(1)#; touch PWN", None),
    ("a=()#;touch PWN", None),
    ("x=$(a=(1 \\'2)); touch PWN; : '", None),
    ("case x in (}) a;; esac", None),
    ("time -p\\\n", None),
    ("[[ a && #'\nb ]]; touch PWN #' ]]", None),
    ("[[ a || b ]] && c", Some("c")),
    ("[[ a &&\nb ]]", None),
    ("[[ -\\\nx ]]", None),
    ("[[ a \\\n-nt b ]]", Some("")),
    ("[[ $x =~ ^a.b$ ]]", Some("")),
    ("[[ $x =~ (a|b) ]]", None),
    // Continued lines.
    ("a \\\n  b", Some("a \\\n  b")),
    ("a\\\n  b", Some("a\\\n  b")),
    ("a\\\nb; c", Some("a\\\nb|c")),
    ("$a\\\nb", None),
    ("a\\\n=b", None),
    ("i\\\nf", None),
    ("a\\\n; b", None),
    ("a &&\\\nb", Some("a|b")),
    ("a &\\\n> f", None),
    ("a|\\\n|b", None),
    ("2\\\n>f a", None),
    ("a \"b\\\nc\"", Some("a \"b\\\nc\"")),
    // Quotes.
    ("a 'b;c' \"d;e\" f\\;g", Some("a 'b;c' \"d;e\" f\\;g")),
    ("a 'b", None),
    ("ls $'\\x41\\n\\''", Some("ls $'\\x41\\n\\''")),
    ("ls $'\\c\\\\' ; touch PWN ; : \"'\" '\"' \\'", None),
    ("ls $'\\q'", None),
    ("ls $\"a\"", None),
    ("a `b` \"`c`\"", Some("a `b` \"`c`\"|b|c")),
    ("a `b \\`c\\``", None),
    // Here-documents.
    ("a <<E; b\n$(c)\nE\nd", Some("a <<E|b|d")),
    ("a <<'E'\n$(c)\nE\n", Some("a <<'E'")),
    ("a <<-E\n\tx\n\tE\nb", Some("a <<-E|b")),
    ("ls <<-EOF\n\tEO\\\n\tF\nls '\nEOF\ntouch PWN\nls '\n", None),
    ("a <<E\nb \\\nc\nE\n", Some("a <<E")),
    ("a <<EOF\nEO\\\nF\nEOF\n", None),
    ("ls <<\"a\\\"b\"; touch PWN; ls \\\"\na\"b\n", None),
    ("ls <<'a'\\''b'\na'b\n", None),
    ("a <<E\nb", None),
    (
        "a \"$(b <<'E'\nc\nE\n)\"",
        Some("a \"$(b <<'E'\nc\nE\n)\"|b <<'E'"),
    ),
    ("x=$(ls <<E\n\nE)\ntouch PWN\nE\n)\n", None),
    ("x=$(a <<EF\nE\\\nF)\ntouch PWN\nEF\n)", None),
    ("a <<E $(b)\nE\n", None),
    // Parameters.
    (
        "a ${x} \"${x:-y}\" ${#x} ${x[0]} ${x[@]} ${x: -1:2} ${!x*}",
        Some("a ${x} \"${x:-y}\" ${#x} ${x[0]} ${x[@]} ${x: -1:2} ${!x*}"),
    ),
    (
        "a \"${x#\"$y\"}\" ${x%'}'}",
        Some("a \"${x#\"$y\"}\" ${x%'}'}"),
    ),
    ("echo \"${x#'\"'}\" ; touch PWN ; : } '\"' \\'", None),
    ("false && echo ${a[} || touch PWN || : ]}", None),
    ("a ${x:-$(b)}", Some("a ${x:-$(b)}|b")),
    ("a ${ b; }", None),
    ("a ${x:-<(b)}", None),
    ("a \"$(b ${x:-$'\\x24(touch PWN)'})\"", None),
    ("y=\"$(b ${x:+c$'\\x24(touch PWN)'})\"", None),
    ("a \"${y:-$(b ${x:-$'\\x24(touch PWN)'})}\"", None),
    ("a ${x:-$'b'}", None),
    ("a \"$(b $'c')\"", Some("a \"$(b $'c')\"|b $'c'")),
    // Arithmetic, subscripts and keys.
    ("a $((1 + x))", Some("a $((1 + x))")),
    ("a $((x['y']))", None),
    ("((touch PWN ${x#)} ))", None),
    ("a $((${x[${y#(}]}))", None),
    (
        "a $((1 + ${x:-\")\"} + $(b ${x#)})))",
        Some("a $((1 + ${x:-\")\"} + $(b ${x#)})))"),
    ),
    ("a $[1]", None),
    ("a=([0]=1 [1]=2)", Some("a=([0]=1 [1]=2)")),
    ("a=(['$(touch PWN)']=1)", None),
    ("a[0]=1 b", Some("a[0]=1 b")),
    ("a['x']=1", None),
    ("a[1 2]", None),
    (
        "a[$(b a[0]=c)]=1 >f d[1]=2",
        Some("a[$(b a[0]=c)]=1 >f d[1]=2"),
    ),
    ("declare -a <(b) a=(1 2)", None),
    ("declare -a <(b) a=1", Some("declare -a <(b) a=1|b")),
    ("ls [ab] x[1]", Some("ls [ab] x[1]")),
    // Redirections.
    ("a >f 2>&1 <&- {v}>g &>h", Some("a >f 2>&1 <&- {v}>g &>h")),
    ("ls >&-foo", None),
    (">ls &>> new+=e", None),
    ("case $x in a) for y in esac b; do c; done;; esac", None),
    ("ls &>> a[1]", None),
    ("ls &>> new", Some("ls &>> new")),
    (">ls >> a=b", Some(">ls >> a=b")),
    ("ls {a['$(touch PWN)']}>/dev/null", None),
    ("a <(b) > >(c)", Some("a <(b) > >(c)|b|c")),
    ("a x<(b)", None),
    ("a 99999999999>f", None),
    ("ls @(a|b)", None),
];

fn simple(script: &Script, list: &List, found: &mut Vec<String>) {
    let commands = list.iter().flat_map(|item| &item.commands);
    for command in commands {
        let range = command.range.clone();
        let lists: Vec<&List> = match &command.kind {
            ShellCommandKind::Simple { .. } => {
                found.push(script.source[range.clone()].to_owned());
                vec![]
            }
            ShellCommandKind::Group(list) | ShellCommandKind::Subshell(list) => vec![list],
            ShellCommandKind::Branches(lists) | ShellCommandKind::Loop(lists) => {
                lists.iter().collect()
            }
            ShellCommandKind::For { body, .. } | ShellCommandKind::ArithmeticFor { body, .. } => {
                vec![body]
            }
            ShellCommandKind::Case { arms, .. } => arms.iter().map(|(_, list)| list).collect(),
            ShellCommandKind::Function { body, .. } | ShellCommandKind::Coprocess { body, .. } => {
                if let ShellCommandKind::Group(list) = &body.kind {
                    vec![list]
                } else {
                    vec![]
                }
            }
            ShellCommandKind::Arithmetic(_) | ShellCommandKind::Condition(_) => vec![],
        };
        lists
            .into_iter()
            .for_each(|list| simple(script, list, found));
        words(script, command, found);
    }
}

/// Collects the commands in a command's words.
fn words(script: &Script, command: &super::syntax::ShellCommand, found: &mut Vec<String>) {
    use super::syntax::{Body, Piece};
    fn pieces(script: &Script, all: &[Piece], found: &mut Vec<String>) {
        for piece in all {
            match piece {
                Piece::Command {
                    body: Body::Inline(inline),
                    ..
                }
                | Piece::Process(inline) => simple(script, &inline.list, found),
                Piece::Command {
                    body: Body::Apart(script),
                    ..
                } => simple(script, &script.list, found),
                Piece::Parameter { inner, .. } => pieces(script, inner, found),
                _ => {}
            }
        }
    }
    if let ShellCommandKind::Simple { words, .. } = &command.kind {
        words
            .iter()
            .for_each(|word| pieces(script, &word.pieces, found));
    }
    command
        .redirects
        .iter()
        .for_each(|redirect| pieces(script, &redirect.target.pieces, found));
}

#[test]
fn lines_are_parsed_or_refused() {
    let read = |line: &str| {
        let script = parse(line, 0).ok()?;
        let mut found = vec![];
        simple(&script, &script.list, &mut found);
        Some(found.join("|"))
    };
    for (line, wanted) in LINES {
        assert_eq!(read(line).as_deref(), *wanted, "{line:?}");
    }
}

#[test]
fn beginning_returns_items_before_the_unreadable_part() {
    let rest =
        |line: &str| parse_prefix(line).map(|(script, rest)| (script.list.len(), rest.to_owned()));
    assert_eq!(rest("a; b; c $[1]; d"), Some((2, " c $[1]; d".into())));
    assert_eq!(rest("a && c $[1]"), Some((0, "a && c $[1]".into())));
    assert_eq!(rest("a; b"), None);
}
