//! Renders Markdown as harmless HTML: no HTML of the author, no scripts, only web and mail
//! addresses, no remote pictures.

use pulldown_cmark::{
    CodeBlockKind, CowStr, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd,
};

pub fn html(text: &str) -> String {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut out = String::with_capacity(text.len() * 3 / 2);
    pulldown_cmark::html::push_html(&mut out, Parser::new_ext(text, options).map(harmless));
    out.retain(|letter| !letter.is_control() || matches!(letter, '\n' | '\t'));
    out
}

fn harmless(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Html(html) | Event::InlineHtml(html) => Event::Text(html),
        Event::Start(Tag::Heading { level, .. }) => {
            let level = lower(level);
            Event::Start(Tag::Heading {
                level,
                id: None,
                classes: Vec::new(),
                attrs: Vec::new(),
            })
        }
        Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(lower(level))),
        // A remote picture would inform its server of every reader, so it becomes a link.
        Event::Start(
            Tag::Link {
                link_type,
                dest_url,
                ..
            }
            | Tag::Image {
                link_type,
                dest_url,
                ..
            },
        ) => {
            let dest_url = address(link_type, dest_url);
            Event::Start(Tag::Link {
                link_type: LinkType::Inline,
                dest_url,
                title: "".into(),
                id: "".into(),
            })
        }
        Event::End(TagEnd::Image) => Event::End(TagEnd::Link),
        Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
            let language: String = info
                .chars()
                .take_while(|c| c.is_alphanumeric() || "+-_#.".contains(*c))
                .collect();
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language.into())))
        }
        other => other,
    }
}

/// Lowers a heading, because the page has headings above it.
fn lower(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 => HeadingLevel::H3,
        HeadingLevel::H2 => HeadingLevel::H4,
        HeadingLevel::H3 => HeadingLevel::H5,
        _ => HeadingLevel::H6,
    }
}

fn address(kind: LinkType, address: CowStr<'_>) -> CowStr<'_> {
    let lower = address.to_ascii_lowercase();
    let fine = ["http://", "https://", "mailto:"]
        .iter()
        .any(|scheme| lower.starts_with(scheme));
    if kind == LinkType::Email || fine {
        address
    } else {
        "".into()
    }
}

#[cfg(test)]
mod tests {
    use super::html;

    #[test]
    fn hostile_markdown_becomes_harmless_html() {
        for hostile in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "[x](javascript:alert(1))",
            "[x](JaVaScRiPt:alert(1))",
            "[x](data:text/html,<script>alert(1)</script>)",
            "![x](https://tracker.example/pixel.png)",
            "[x](https://a.example \"\\\" onmouseover=alert(1)\")",
            "```\"><script>alert(1)</script>\nx\n```",
            "<a href='https://a.example' onclick=alert(1)>x</a>",
            "<!-- --><svg onload=alert(1)>",
        ] {
            let out = html(hostile);
            let tags: String = out
                .split('<')
                .skip(1)
                .filter_map(|rest| rest.split('>').next())
                .collect::<Vec<_>>()
                .join("|");
            for bad in [
                "script",
                "img",
                "svg",
                "onerror=",
                "onclick",
                "onmouseover",
                "onload",
            ] {
                assert!(!tags.contains(bad), "{hostile}: {out}");
            }
            let lower = out.to_lowercase();
            assert!(
                !lower.contains("href=\"javascript") && !lower.contains("href=\"data"),
                "{hostile}: {out}"
            );
        }
        assert_eq!(
            html("# A\n\n*b* `c`"),
            "<h3>A</h3>\n<p><em>b</em> <code>c</code></p>\n"
        );
    }
}
