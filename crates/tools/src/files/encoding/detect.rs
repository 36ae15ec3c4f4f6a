//! Detection of a file's encoding.

use std::sync::Arc;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{
    BIG5, EUC_JP, EUC_KR, Encoding, GB18030, GBK, IBM866, ISO_2022_JP, ISO_8859_2, ISO_8859_4,
    ISO_8859_5, ISO_8859_6, ISO_8859_7, ISO_8859_8, ISO_8859_10, ISO_8859_13, ISO_8859_15,
    ISO_8859_16, KOI8_R, KOI8_U, SHIFT_JIS, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_874, WINDOWS_1250,
    WINDOWS_1251, WINDOWS_1252, WINDOWS_1253, WINDOWS_1254, WINDOWS_1255, WINDOWS_1256,
    WINDOWS_1257, WINDOWS_1258,
};

use super::hints::EncodingHint;
use super::{DecodedText, EncodedSource, NotText, decoded, has_mostly_control_chars, is_utf16};

/// The maximum number of bytes of a file that are examined for statistics, if a line ends in them.
const MAX_EXAMINED_BYTES: usize = 1 << 20;

// A guess is certain from a number of characters outside ASCII. Fewer are often words of another
// encoding too.

/// The number for an encoding with several bytes per character.
const ENOUGH_MULTIBYTE: usize = 8;
/// The number for an encoding of Latin letters.
const ENOUGH_LATIN: usize = 12;
/// The number for any other encoding.
const ENOUGH_OTHER: usize = 20;

/// Encodings with several bytes per character.
const MULTIBYTE: [&Encoding; 6] = [GBK, GB18030, BIG5, SHIFT_JIS, EUC_JP, EUC_KR];

/// Encodings of the Latin script.
const LATIN: [&Encoding; 11] = [
    WINDOWS_1252,
    ISO_8859_15,
    WINDOWS_1250,
    ISO_8859_2,
    WINDOWS_1254,
    WINDOWS_1257,
    WINDOWS_1258,
    ISO_8859_4,
    ISO_8859_10,
    ISO_8859_13,
    ISO_8859_16,
];

/// The encodings that an 8-bit file may have, the more frequent ones first.
pub(super) const CANDIDATES: [&Encoding; 28] = [
    WINDOWS_1252,
    WINDOWS_1251,
    GBK,
    SHIFT_JIS,
    BIG5,
    EUC_KR,
    EUC_JP,
    WINDOWS_1250,
    ISO_8859_2,
    ISO_8859_15,
    KOI8_R,
    KOI8_U,
    IBM866,
    WINDOWS_1253,
    WINDOWS_1254,
    WINDOWS_1255,
    WINDOWS_1256,
    WINDOWS_1257,
    WINDOWS_1258,
    WINDOWS_874,
    ISO_8859_5,
    ISO_8859_7,
    ISO_8859_8,
    ISO_8859_6,
    ISO_8859_4,
    ISO_8859_10,
    ISO_8859_13,
    ISO_8859_16,
];

/// Pairs of encodings with the same letters, most of which have the same bytes in both.
const SIBLINGS: [(&Encoding, &Encoding); 7] = [
    (WINDOWS_1252, ISO_8859_15),
    (WINDOWS_1250, ISO_8859_2),
    (WINDOWS_1253, ISO_8859_7),
    (WINDOWS_1255, ISO_8859_8),
    (WINDOWS_1257, ISO_8859_13),
    (WINDOWS_1257, ISO_8859_4),
    (KOI8_R, KOI8_U),
];

/// Returns the text of a file. `hint` decides if detection is not certain.
///
/// # Errors
/// The reason why the bytes are not a text.
pub fn decode(bytes: Vec<u8>, hint: impl FnOnce() -> EncodingHint) -> Result<DecodedText, NotText> {
    match &bytes[..] {
        [0xff, 0xfe, 0, 0, ..] => return Err(NotText::Unsupported("UTF-32LE")),
        [0, 0, 0xfe, 0xff, ..] => return Err(NotText::Unsupported("UTF-32BE")),
        [0xff, 0xfe, ..] => return decode_utf16(UTF_16LE, bytes),
        [0xfe, 0xff, ..] => return decode_utf16(UTF_16BE, bytes),
        _ => {}
    }
    match String::from_utf8(bytes) {
        Ok(text) if memchr::memchr(0, text.as_bytes()).is_some() => with_nul(text),
        Ok(text) if text.is_ascii() => Ok(ascii(text, hint)),
        Ok(text) => Ok(DecodedText { text, source: None }),
        Err(e) => foreign(e.into_bytes(), hint),
    }
}

/// Returns the encoding in which a search has to decode a file; `None` if it can search the bytes.
/// `head` is the beginning of the file.
pub fn search_encoding(
    head: &[u8],
    hint: impl FnOnce() -> EncodingHint,
) -> Option<&'static Encoding> {
    // Searches read UTF-16 with a byte order mark, and invalid bytes in UTF-8, on their own.
    if matches!(head, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) {
        return None;
    }
    match std::str::from_utf8(head) {
        Ok(_) if memchr::memchr2(0, 0x1b, head).is_none() => return None,
        // The head ends within a character.
        Err(e) if e.error_len().is_none() => return None,
        _ => {}
    }
    let source = decode(head.to_vec(), hint).ok()?.source?;
    (source.encoding != UTF_8 && !source.is_utf8()).then_some(source.encoding)
}

/// Returns the text of a source, with the source.
fn source(source: EncodedSource) -> DecodedText {
    DecodedText {
        text: source.text.clone(),
        source: Some(Arc::new(source)),
    }
}

/// Returns the text of a file in UTF-16.
fn decode_utf16(encoding: &'static Encoding, bytes: Vec<u8>) -> Result<DecodedText, NotText> {
    let read = EncodedSource::new(encoding, bytes, true);
    let invalid = read.text.matches(super::INVALID).count();
    if invalid * 8 > read.text.chars().count() {
        return Err(NotText::Binary);
    }
    Ok(source(read))
}

/// Returns the text of a file that is valid UTF-8 with NUL characters.
fn with_nul(text: String) -> Result<DecodedText, NotText> {
    if let Some(encoding) = unmarked_utf16(text.as_bytes()) {
        return decode_utf16(encoding, text.into_bytes());
    }
    if has_many_nuls(text.as_bytes()) {
        return Err(NotText::Binary);
    }
    Ok(source(EncodedSource::new(UTF_8, text.into_bytes(), true)))
}

/// Returns the text of a file that is all ASCII, which means the same in most encodings.
fn ascii(text: String, hint: impl FnOnce() -> EncodingHint) -> DecodedText {
    if memchr::memmem::find(text.as_bytes(), b"\x1b$").is_some() {
        let (read, is_invalid) = decoded(ISO_2022_JP, text.as_bytes());
        if !is_invalid && !read.is_ascii() {
            return source(EncodedSource::new(ISO_2022_JP, text.into_bytes(), true));
        }
    }
    match hint().named() {
        Some(encoding) if encoding != UTF_8 && !is_utf16(encoding) => {
            source(EncodedSource::new(encoding, text.into_bytes(), true))
        }
        _ => DecodedText { text, source: None },
    }
}

/// Returns the text of a file that is not UTF-8.
fn foreign(bytes: Vec<u8>, hint: impl FnOnce() -> EncodingHint) -> Result<DecodedText, NotText> {
    let (valid, invalid) = utf8_sequences(&bytes);
    let is_damaged_utf8 = valid >= 4 * invalid || bytes.starts_with(b"\xef\xbb\xbf");
    if memchr::memchr(0, &bytes).is_some() {
        if let Some(encoding) = unmarked_utf16(&bytes) {
            return decode_utf16(encoding, bytes);
        }
        if !is_damaged_utf8 || has_many_nuls(&bytes) {
            return Err(NotText::Binary);
        }
    }
    if has_mostly_control_chars(&bytes) {
        return Err(NotText::Binary);
    }
    if is_damaged_utf8 {
        return Ok(source(EncodedSource::new(UTF_8, bytes, true)));
    }
    if has_control_chars(&bytes) {
        return Err(NotText::Binary);
    }
    let guessed = guess(bytes);
    if guessed.is_certain {
        return Ok(source(guessed));
    }
    let hint = hint();
    for encoding in hint.all() {
        let fits = if encoding == UTF_8 {
            valid >= invalid || invalid <= 3
        } else {
            !decoded(encoding, &guessed.bytes).1
        };
        if fits {
            return Ok(source(EncodedSource::new(encoding, guessed.bytes, true)));
        }
    }
    Ok(source(guessed))
}

/// Returns whether bytes that are not UTF-8 begin with more control characters than a text in
/// another encoding has. Of arbitrary bytes they are a tenth.
fn has_control_chars(bytes: &[u8]) -> bool {
    const ESCAPE: u8 = 0x1b;
    let sample = &bytes[..bytes.len().min(4096)];
    let is_control = |byte: u8| (byte < 9 || (14..32).contains(&byte)) && byte != ESCAPE;
    let control = sample.iter().filter(|byte| is_control(**byte)).count();
    control * 25 > sample.len()
}

/// Guesses the encoding of bytes that are not UTF-8, and determines whether the guess is certain.
fn guess(bytes: Vec<u8>) -> EncodedSource {
    let first = bytes.iter().position(|byte| *byte >= 0x80).unwrap_or(0);
    let from = memchr::memrchr(b'\n', &bytes[..first]).map_or(0, |at| at + 1);
    let range = from..examined_end(&bytes, from);
    let examined = &bytes[range.clone()];
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    let fed = &examined[..examined.len().min(MAX_EXAMINED_BYTES)];
    detector.feed(fed, from + fed.len() == bytes.len());
    let mut encoding = detector.guess(None, Utf8Detection::Deny);
    let is_latin_word = LATIN.contains(&encoding) && is_within_words(examined);
    if encoding == GBK && has_four_bytes(&bytes) {
        encoding = GB18030;
    }
    let mut found = EncodedSource::new(encoding, bytes, false);
    let count = found.text.chars().filter(|c| !c.is_ascii()).count();
    let enough = if MULTIBYTE.contains(&encoding) {
        ENOUGH_MULTIBYTE
    } else if is_latin_word {
        ENOUGH_LATIN
    } else {
        ENOUGH_OTHER
    };
    found.is_certain = count >= enough
        && is_plausible(&found.text, found.has_invalid)
        && is_natural(encoding, &found.text, &found.bytes);
    found.is_guess = true;
    let certain = found.is_certain;
    // All else is not decoded in every encoding: more of them fit a part, never fewer.
    let examined = &found.bytes[range];
    let (shown, _) = decoded(encoding, examined);
    found.possible = CANDIDATES
        .into_iter()
        .filter(|other| *other != encoding && !(*other == GBK && encoding == GB18030))
        .filter(|other| !certain || is_sibling(encoding, other))
        .filter(|other| {
            let (text, is_invalid) = decoded(other, examined);
            if certain {
                return text == shown;
            }
            let belongs = !is_latin_word || LATIN.contains(other) || MULTIBYTE.contains(other);
            belongs && is_plausible(&text, is_invalid)
        })
        .collect();
    if !certain && found.possible.is_empty() {
        found.possible = CANDIDATES
            .into_iter()
            .filter(|other| *other != encoding)
            .collect();
    }
    found
}

/// Returns the end of the part of a file that is examined, which begins at `from`. It is the end of
/// a line, because no character in any of the encodings contains the byte of a line end.
fn examined_end(bytes: &[u8], from: usize) -> usize {
    let most = from + MAX_EXAMINED_BYTES;
    if bytes.len() <= most {
        return bytes.len();
    }
    memchr::memrchr(b'\n', &bytes[from..most]).map_or(bytes.len(), |at| from + at + 1)
}

/// Returns whether two encodings are [`SIBLINGS`].
fn is_sibling(one: &'static Encoding, other: &'static Encoding) -> bool {
    SIBLINGS.contains(&(one, other)) || SIBLINGS.contains(&(other, one))
}

/// Returns whether a decoded text may be the original: all its bytes are valid, and it has no
/// control characters that only a wrong encoding has.
fn is_plausible(text: &str, is_invalid: bool) -> bool {
    !is_invalid && !text.chars().any(|c| ('\u{80}'..'\u{a0}').contains(&c))
}

/// Returns whether a decoded text is written as people write: letters are mostly lower case, and
/// most characters are among the frequent ones. Otherwise it may be another script.
fn is_natural(encoding: &'static Encoding, text: &str, bytes: &[u8]) -> bool {
    if MULTIBYTE.contains(&encoding) {
        return has_frequent_characters(encoding, bytes);
    }
    let letters = text.chars().filter(|c| !c.is_ascii());
    let cased = letters.filter(|c| c.is_lowercase() || c.is_uppercase());
    let (all, upper) = cased.fold((0, 0), |(all, upper), c| {
        (all + 1, upper + usize::from(c.is_uppercase()))
    });
    let mixed = text
        .chars()
        .zip(text.chars().skip(1))
        .filter(|(c, next)| !next.is_ascii() && c.is_lowercase() && next.is_uppercase())
        .count();
    upper * 2 <= all && mixed * 20 <= all
}

/// Returns whether a text in GBK has characters of four bytes, which only GB18030 has.
fn has_four_bytes(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let [lead, after @ ..] = rest {
        rest = after;
        if *lead < 0x80 {
            continue;
        }
        match after {
            [b'0'..=b'9', 0x80..=0xff, ..] => return true,
            [_, after @ ..] => rest = after,
            [] => {}
        }
    }
    false
}

/// Returns whether most characters of two bytes are in the part of the encoding that has the
/// frequent ones. Japanese is hardly ever written without kana.
fn has_frequent_characters(encoding: &'static Encoding, bytes: &[u8]) -> bool {
    let mut all = 0;
    let mut frequent = 0;
    let mut kana = 0;
    let mut rest = bytes;
    while let [lead, after @ ..] = rest {
        rest = after;
        let [trail, after @ ..] = after else { break };
        // One byte: ASCII, and katakana of half width in Shift_JIS.
        if *lead < 0x80 || encoding == SHIFT_JIS && (0xa1..=0xdf).contains(lead) {
            continue;
        }
        rest = after;
        all += 1;
        let (is_frequent, is_kana) = match encoding {
            _ if encoding == SHIFT_JIS => (
                matches!(lead, 0x81..=0x84 | 0x88..=0x97),
                matches!((lead, trail), (0x82, 0x9f..) | (0x83, ..=0x96)),
            ),
            _ if encoding == EUC_JP => (
                matches!(lead, 0xa1..=0xa5 | 0xb0..=0xcf),
                matches!(lead, 0xa4 | 0xa5),
            ),
            _ if encoding == EUC_KR => (matches!(lead, 0xa1..=0xa3 | 0xb0..=0xc8), false),
            _ if encoding == BIG5 => (matches!(lead, 0xa1..=0xc6), false),
            // The simplified characters of level 1.
            _ => (
                matches!(lead, 0xa1..=0xa3 | 0xb0..=0xd7) && *trail >= 0xa1,
                false,
            ),
        };
        frequent += usize::from(is_frequent);
        kana += usize::from(is_kana);
    }
    let is_japanese = encoding == SHIFT_JIS || encoding == EUC_JP;
    frequent * 10 >= all * 8 && (!is_japanese || kana * 10 >= all)
}

/// Returns whether most bytes above ASCII are single letters in words of ASCII letters.
fn is_within_words(bytes: &[u8]) -> bool {
    let is_letter = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphabetic);
    let mut within = 0;
    let mut all = 0;
    let mut end = 0;
    for run in bytes.chunk_by(|a, b| (*a >= 0x80) == (*b >= 0x80)) {
        let start = end;
        end += run.len();
        if run[0] < 0x80 {
            continue;
        }
        all += 1;
        let before = start.checked_sub(1).and_then(|at| bytes.get(at));
        let after = bytes.get(end);
        within += usize::from(run.len() <= 2 && (is_letter(before) || is_letter(after)));
    }
    within * 2 > all
}

/// Returns the number of valid UTF-8 characters outside ASCII, and the number of invalid sequences.
fn utf8_sequences(bytes: &[u8]) -> (usize, usize) {
    let mut valid = 0;
    let mut invalid = 0;
    for chunk in bytes.utf8_chunks() {
        valid += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        invalid += usize::from(!chunk.invalid().is_empty());
    }
    (valid, invalid)
}

/// Returns whether NUL bytes are too frequent for a text.
fn has_many_nuls(bytes: &[u8]) -> bool {
    memchr::memchr_iter(0, bytes).count() > 1 + bytes.len() / 64 || has_mostly_control_chars(bytes)
}

/// Recognises UTF-16 without byte order mark: in most pairs, the same byte is NUL.
fn unmarked_utf16(bytes: &[u8]) -> Option<&'static Encoding> {
    // Fewer bytes may be a text with a NUL.
    if bytes.len() < 8 || bytes.len() % 2 == 1 {
        return None;
    }
    let pairs = bytes.len() / 2;
    let nuls = |first: usize| {
        bytes
            .iter()
            .skip(first)
            .step_by(2)
            .filter(|byte| **byte == 0)
            .count()
    };
    let encoding = match (nuls(0), nuls(1)) {
        (0, odd) if odd * 10 >= pairs * 3 => UTF_16LE,
        (even, 0) if even * 10 >= pairs * 3 => UTF_16BE,
        _ => return None,
    };
    let (text, is_invalid) = decoded(encoding, bytes);
    let is_deceptive = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{c}');
    (!is_invalid && !text.contains(is_deceptive)).then_some(encoding)
}
