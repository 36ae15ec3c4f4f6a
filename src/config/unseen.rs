//! Characters that nobody sees and a model reads all the same: a place to hide instructions in.

/// A text without characters that nobody can see but a model reads: tags, direction marks, zero
/// widths, private signs of joining; and how many were taken out. Joiners stay between characters
/// of scripts and emoji that need them.
pub fn visible(text: &str) -> (String, usize) {
    if text.is_ascii() {
        return (text.to_owned(), 0);
    }
    let mut out = String::with_capacity(text.len());
    let mut removed = 0;
    let mut chars = text.chars().peekable();
    let mut last = ' ';
    while let Some(c) = chars.next() {
        let joins = matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe0f}' | '\u{fe0e}');
        let joined = joins && !last.is_ascii() && (c > '\u{fe00}' || chars.peek().is_some_and(|next| !next.is_ascii()));
        let hidden = matches!(c,
            '\u{e0000}'..='\u{e0fff}'           // tags, and further variation selectors
            | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}' // direction
            | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}' | '\u{206a}'..='\u{206f}' | '\u{feff}' // no width
            | '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180e}'
            | '\u{3164}' | '\u{ffa0}' | '\u{fe00}'..='\u{fe0f}' | '\u{fff9}'..='\u{fffb}');
        if hidden && !joined {
            removed += 1;
        } else {
            out.push(c);
            last = c;
        }
    }
    (out, removed)
}
