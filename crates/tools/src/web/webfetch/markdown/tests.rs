use super::*;

fn read_at(html: &str, plain: bool) -> String {
    read(
        html,
        &Url::parse("https://a.example/docs/page").unwrap(),
        plain,
    )
    .text
}

#[test]
fn pages_become_markdown() {
    let table = [
        ("", ""),
        ("words", "words"),
        ("<p>One</p><p>Two\n  three</p>", "One\n\nTwo three"),
        ("a<br>b<br><br>c", "a\nb\n\nc"),
        ("<h1>A <em>b</em></h1><h2>c</h2>d", "# A *b*\n\n## c\n\nd"),
        ("<title>T &amp; U</title><p>x", "# T & U\n\nx"),
        (
            "<title>T</title><svg><title>no</title></svg><h1>x</h1>",
            "# x",
        ),
        ("<p>a <b>bold </b>c <i></i>d", "a **bold** c d"),
        ("<b><strong>x</strong></b>", "**x**"),
        (
            "<a href='/x'>there</a>, <a href=y>and</a>",
            "[there](https://a.example/x), [and](https://a.example/docs/y)",
        ),
        (
            "<a href='#top'>up</a> <a href='javascript:1'>no</a> <a name=x>plain</a>",
            "up no plain",
        ),
        ("<a href=/x></a>y", "y"),
        (
            "<a href=/x><div><h3>Card</h3><p>words</div></a><p>next",
            "[Card words](https://a.example/x)\n\nnext",
        ),
        ("<a href='/a_(b)'>x</a>", "[x](https://a.example/a_%28b%29)"),
        (
            "<ul><li>a<li>b<ul><li>c</ul><li>d</ul>e",
            "- a\n- b\n  - c\n- d\n\ne",
        ),
        (
            "<ol start=3><li><p>a</p><p>b</p></li><li>c</ol>",
            "3. a\n\n   b\n\n4. c",
        ),
        ("<blockquote><p>a<p>b</blockquote>c", "> a\n>\n> b\n\nc"),
        (
            "x <code> a  b </code>, <code>`t`</code>",
            "x `a b` , `` `t` ``",
        ),
        (
            "<pre><code class='hl language-rust'>fn a() {\n\n  1\n}\n</code></pre>after",
            "```rust\nfn a() {\n\n  1\n}\n```\n\nafter",
        ),
        ("<pre>\n```\nx</pre>", "````\n```\nx\n````"),
        ("<li><pre>a\nb</pre>", "- ```\n  a\n  b\n  ```"),
        (
            "<table><tr><th>a<th>b<tr><td>1<td>x|y<tr><td><td>3</table>z",
            "| a | b |\n| --- | --- |\n| 1 | x\\|y |\n|  | 3 |\n\nz",
        ),
        (
            "<table><tr><td><p>One</p><p>Two</p></td><td><ul><li>x</ul></td></tr></table>",
            "One\n\nTwo\n\n- x",
        ),
        ("<dl><dt>t<dd>m</dl>", "t\n: m"),
        (
            "<img alt='a cat' src=/c.png><img src=/track.gif><img alt=d src='data:x'>",
            "![a cat](https://a.example/c.png)d",
        ),
        ("a<hr>b", "a\n\n---\n\nb"),
        (
            "a<script>if (1<2) {}</script><style>p{}</style><noscript>n</noscript>b",
            "ab",
        ),
        ("a<template><p>b<template>c</template></template>d", "ad"),
        ("<!-- no --><!doctype html>yes", "yes"),
        ("&lt;b&gt; &copy; &#x41;", "<b> © A"),
        ("</p></ul></li></a></b></table></pre>ok", "ok"),
        (
            "<meta http-equiv=refresh content='0;url=http://evil.test/'>ok",
            "ok",
        ),
    ];
    for (html, expected) in table {
        assert_eq!(read_at(html, false), expected, "{html}");
    }
}

#[test]
fn plain_text_has_no_marks() {
    let table = [
        ("<h1>A</h1><p><b>b</b> <a href=/x>c</a>", "A\n\nb c"),
        ("<pre><code class=language-c>x\n y</code></pre>", "x\n y"),
        ("<code>a</code><img alt=cat src=c.png>", "acat"),
        ("<title>T</title>x", "T\n\nx"),
    ];
    for (html, expected) in table {
        assert_eq!(read_at(html, true), expected, "{html}");
    }
}

/// Reads pages for which a tree builder would need excessive time or stack.
#[test]
fn hostile_pages_are_bounded() {
    let deep = 50_000;
    let table = [
        ("<div>".repeat(deep) + "x", "x".to_owned()),
        ("<b>".repeat(deep) + "x", "**x**".into()),
        (
            "<ul><li>".repeat(deep) + "x",
            format!("{}x", "- ".repeat(MAX_DEPTH / 2)),
        ),
        (
            "<blockquote>".repeat(deep) + "x",
            format!("{}x", "> ".repeat(MAX_DEPTH)),
        ),
        ("<table><tr><td>".repeat(deep) + "x", "x".into()),
        ("<template>".repeat(deep) + "x", String::new()),
        (
            "<a href=/x>".repeat(deep) + "x",
            "[x](https://a.example/x)".into(),
        ),
        ("<font a=1><p>".repeat(deep) + "x", "x".into()),
        ("<pre><code>".repeat(deep) + "x", "```\nx\n```".into()),
    ];
    for (html, expected) in table {
        let text = read_at(&html, false);
        assert_eq!(text.trim_start_matches("| "), expected, "{}", &html[..20]);
    }
    let long = format!("https://a.example/{}/", "p".repeat(900));
    let many = "<a href=x>y</a> ".repeat(20_000);
    let text = read(&many, &Url::parse(&long).unwrap(), false).text;
    assert!(
        text.len() < MAX_OUTPUT_BYTES + (64 << 10) && text.ends_with("left out.)"),
        "{}",
        text.len()
    );
}

/// Checks for a sequence of elements that no word is lost, the order of the words is preserved, and
/// hidden text is left out.
fn check_visible_words(pieces: &[&str], plain: bool) -> Result<(), String> {
    let mut words = Vec::new();
    let mut html = String::new();
    for piece in pieces {
        if *piece == "W" {
            words.push(format!("w{}.", words.len()));
            html.push_str(&words[words.len() - 1]);
        } else {
            html.push_str(piece);
        }
    }
    let text = read_at(&html, plain);
    let mut from = 0;
    for word in &words {
        match text[from..].find(word.as_str()) {
            Some(at) => from += at + word.len(),
            None => return Err(format!("{word} is lost\n{html}\n{text}")),
        }
    }
    if text.contains("HIDDEN") {
        Err(format!("hidden\n{html}\n{text}"))
    } else {
        Ok(())
    }
}

proptest::proptest! {
    #[test]
    fn visible_words_are_never_lost(pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..80), plain: bool) {
        check_visible_words(&pieces, plain).map_err(proptest::test_runner::TestCaseError::fail)?;
    }
}

const PIECES: &[&str] = &[
    "W",
    "W",
    "W",
    " ",
    "\n",
    "|",
    "`",
    "&amp;",
    "\u{202e}",
    "<p>",
    "</p>",
    "<div>",
    "</div>",
    "<br>",
    "<hr>",
    "<h1>",
    "</h1>",
    "<h3>",
    "</h3>",
    "<ul>",
    "</ul>",
    "<ol start=7>",
    "</ol>",
    "<li>",
    "</li>",
    "<dl>",
    "<dt>",
    "<dd>",
    "</dd>",
    "<blockquote>",
    "</blockquote>",
    "<table>",
    "</table>",
    "<tr>",
    "</tr>",
    "<td>",
    "</td>",
    "<th>",
    "<pre>",
    "</pre>",
    "<code class=language-x>",
    "</code>",
    "<b>",
    "</b>",
    "<em>",
    "</em>",
    "<s>",
    "</s>",
    "<a href=/x>",
    "<a>",
    "</a>",
    "<script>HIDDEN</script>",
    "<style>HIDDEN</style>",
    "<template>HIDDEN</template>",
    "<svg><title>HIDDEN</title></svg>",
    "<!-- HIDDEN -->",
    "<select><option>HIDDEN</select>",
    "<img alt=cat src=c.png>",
    "<unknown>",
    "</unknown>",
    "<p/>",
    "<>",
];
