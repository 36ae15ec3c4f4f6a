//! Converts a response body for a model: text as text, images as images, and only the kind of
//! everything else.

use reqwest::Url;

use super::PageFormat;
use super::markdown;
use crate::files::read::attachment_mime_type;
use base::text;

/// A response body as the model gets it.
#[derive(Debug, PartialEq)]
pub(super) enum FetchedPage {
    /// The text, and the number of invisible characters that were removed from it.
    Text(String, usize),
    /// A file that models can process (an image, a PDF or audio), with its MIME type.
    Image(&'static str),
    /// Anything else, which is not shown.
    Binary,
}

/// Converts the body of a response from `url`. The `content-type` may be wrong.
pub(super) fn read(bytes: &[u8], content_type: &str, url: &Url, format: PageFormat) -> FetchedPage {
    let kind = kind(content_type);
    if let Some(mime) = attachment_mime_type(bytes) {
        return FetchedPage::Image(mime);
    }
    let label = parameter(content_type, "charset");
    let encoding = label
        .as_deref()
        .and_then(|label| encoding_rs::Encoding::for_label(label.as_bytes()));
    let wide = encoding.is_some_and(|encoding| !encoding.is_ascii_compatible())
        || encoding_rs::Encoding::for_bom(bytes).is_some();
    if !wide && (is_binary(bytes) || is_media(&kind)) {
        return FetchedPage::Binary;
    }
    let html = is_html(&kind, bytes);
    let words = decoded(
        bytes,
        encoding.or_else(|| html.then(|| declared(bytes)).flatten()),
    );
    let words = match format {
        PageFormat::Html => words,
        PageFormat::Markdown | PageFormat::Text if !html => words,
        PageFormat::Markdown => markdown::read(&words, url, false).text,
        PageFormat::Text => markdown::read(&words, url, true).text,
    };
    let (words, hidden) = visible(&words);
    FetchedPage::Text(words, hidden)
}

/// Returns the media type: `text/html` of `Text/HTML; charset=utf-8`.
pub(super) fn kind(content_type: &str) -> String {
    content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// Returns a parameter of a `content-type`.
fn parameter(content_type: &str, name: &str) -> Option<String> {
    content_type.split(';').skip(1).find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        key.trim()
            .eq_ignore_ascii_case(name)
            .then(|| value.trim().trim_matches('"').to_owned())
    })
}

/// Returns whether a page is HTML, by its media type, or by its beginning if the type is
/// unspecific.
fn is_html(kind: &str, bytes: &[u8]) -> bool {
    let start = || {
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(512)])
            .trim_start()
            .to_ascii_lowercase();
        start.starts_with("<!doctype html") || start.starts_with("<html")
    };
    matches!(kind, "text/html" | "application/xhtml+xml")
        || matches!(
            kind,
            "" | "application/octet-stream" | "text/xml" | "application/xml"
        ) && start()
}

/// Returns whether a type is not text, whatever its bytes.
fn is_media(kind: &str) -> bool {
    let text = kind == "image/svg+xml";
    !text
        && ["image/", "audio/", "video/", "font/"]
            .iter()
            .any(|group| kind.starts_with(group))
}

/// Returns whether a body is unreadable: its beginning has a NUL, or more than a tenth of control
/// characters.
fn is_binary(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(8 << 10)];
    let odd =
        |byte: &&u8| **byte < 0x20 && !matches!(**byte, b'\n' | b'\r' | b'\t' | 0x0c | 0x1b | 0x08);
    start.contains(&0) || start.iter().filter(odd).count() * 10 > start.len()
}

/// Returns the encoding that a page declares in its first kilobyte.
fn declared(bytes: &[u8]) -> Option<&'static encoding_rs::Encoding> {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(1 << 10)]).to_ascii_lowercase();
    let rest = start.split("charset=").nth(1)?;
    let label = rest
        .trim_start_matches(['"', '\''])
        .split(['"', '\'', ' ', '>', ';', '/'])
        .next()?;
    // A page that was readable up to here is not in UTF-16, whatever it declares.
    encoding_rs::Encoding::for_label(label.as_bytes())
        .filter(|encoding| encoding.is_ascii_compatible())
}

/// Decodes a page in the encoding of its byte order mark, otherwise in `encoding`, otherwise in
/// UTF-8 or Windows-1252.
fn decoded(bytes: &[u8], encoding: Option<&'static encoding_rs::Encoding>) -> String {
    let usual = || {
        if std::str::from_utf8(bytes).is_ok() {
            encoding_rs::UTF_8
        } else {
            encoding_rs::WINDOWS_1252
        }
    };
    let bom = encoding_rs::Encoding::for_bom(bytes);
    let encoding = bom
        .map(|(encoding, _)| encoding)
        .or(encoding)
        .unwrap_or_else(usual);
    encoding.decode(bytes).0.into_owned()
}

/// Removes invisible characters from a text, and counts them. Marks that pages put between letters
/// for line breaks are not counted.
fn visible(words: &str) -> (String, usize) {
    let mut controls = 0;
    let mut plain = String::with_capacity(words.len());
    for c in words.chars() {
        match c {
            '\n' | '\t' => plain.push(c),
            '\r' | '\u{ad}' | '\u{200b}' | '\u{2060}' | '\u{feff}' | '\u{0c}' => {}
            c if c.is_control() => controls += 1,
            c => plain.push(c),
        }
    }
    let (seen, hidden) = text::visible(&plain);
    (seen, hidden + controls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url() -> Url {
        Url::parse("https://a.example/").unwrap()
    }

    fn words(bytes: &[u8], content_type: &str) -> String {
        match read(bytes, content_type, &url(), PageFormat::Markdown) {
            FetchedPage::Text(words, hidden) => {
                format!(
                    "{words}{}",
                    if hidden > 0 {
                        format!(" -{hidden}")
                    } else {
                        String::new()
                    }
                )
            }
            FetchedPage::Image(mime) => mime.into(),
            FetchedPage::Binary => "binary".into(),
        }
    }

    #[test]
    fn body_kind_follows_type_and_bytes() {
        let png = b"\x89PNG\r\n\x1a\nrest";
        let table: &[(&[u8], &str, &str)] = &[
            (b"<p>hi</p>", "text/html", "hi"),
            (b"<p>hi</p>", "Text/HTML; charset=UTF-8", "hi"),
            (b"<p>hi</p>", "text/plain", "<p>hi</p>"),
            (b"<!DOCTYPE html><p>hi", "", "hi"),
            (b"{\"a\":1}", "application/json", "{\"a\":1}"),
            (b"{\"a\":1}", "", "{\"a\":1}"),
            (b"<svg/>", "image/svg+xml", "<svg/>"),
            (png, "text/html", "image/png"),
            (png, "image/png", "image/png"),
            (b"not a image", "image/png", "binary"),
            (b"ID3 words", "audio/mpeg", "binary"),
            (b"PK\x03\x04\x00\x00", "application/zip", "binary"),
            // U38: a type that lies.
            (b"MZ\x00\x01\x02", "text/html", "binary"),
            (b"\x01\x02\x03\x04\x05", "text/plain", "binary"),
            (b"caf\xe9", "text/plain; charset=ISO-8859-1", "caf\u{e9}"),
            (b"caf\xe9", "text/plain", "caf\u{e9}"),
            (b"<meta charset='latin1'><p>caf\xe9", "text/html", "caf\u{e9}"),
            (b"<meta charset='utf-16'><p>cafe", "text/html", "cafe"),
            (b"\xff\xfeh\x00i\x00", "text/plain", "hi"),
            (b"h\x00i\x00", "text/plain; charset=utf-16le", "hi"),
            (b"a\r\nb", "text/plain", "a\nb"),
            // U39: never followed.
            (
                b"<meta http-equiv=refresh content='0;url=http://127.0.0.1/'><script>1</script><img src=http://x/>hi",
                "text/html",
                "hi",
            ),
            // U40: ESC, right-to-left override, tags, the same as entities.
            ("a\u{1b}[31mb\u{202e}c\u{e0041}d".as_bytes(), "text/plain", "a[31mbcd -3"),
            (b"a&#x1b;b&#x202e;c&shy;d", "text/html", "abcd -2"),
        ];
        for (bytes, content_type, expected) in table {
            assert_eq!(
                words(bytes, content_type),
                *expected,
                "{content_type} {}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn html_is_converted_to_the_wanted_format() {
        let page = b"<h1>A</h1><p><b>b</b>";
        for (format, expected) in [
            (PageFormat::Markdown, "# A\n\n**b**"),
            (PageFormat::Text, "A\n\nb"),
            (PageFormat::Html, "<h1>A</h1><p><b>b</b>"),
        ] {
            assert_eq!(
                read(page, "text/html", &url(), format),
                FetchedPage::Text(expected.into(), 0)
            );
        }
    }
}
