//! Lists in the structure that bash gives them, which determines the printed form.

use super::super::syntax::{Item, List, Script, ShellCommand};

/// A list as bash joins commands: in pairs, from the left.
pub(super) enum Node<'s> {
    Command(&'s ShellCommand),
    Both(Box<Node<'s>>, &'static str, Option<Box<Node<'s>>>),
    Flagged(String, Box<Node<'s>>),
}

fn both<'s>(first: Node<'s>, sign: &'static str, second: Option<Node<'s>>) -> Node<'s> {
    Node::Both(Box::new(first), sign, second.map(Box::new))
}

fn pipeline<'s>(commands: &'s [ShellCommand]) -> Option<Node<'s>> {
    let (first, rest) = commands.split_first()?;
    let node = match rest {
        [] => Node::Command(first),
        rest => both(Node::Command(first), "|", Some(pipeline(rest)?)),
    };
    Some(node)
}

/// Returns the words before a pipeline (`time`, `!`), parsed backwards.
fn flags(script: &Script, item: &Item) -> String {
    let mut before = &script.source[..item.commands[0].range.start];
    let mut time = false;
    let mut posix = false;
    let mut not = false;
    loop {
        before = before.trim_end_matches([' ', '\t']);
        // After a comment, a continuation joins nothing.
        let joined = before.strip_suffix("\\\n").filter(|text| {
            let mut words = text
                .rsplit('\n')
                .next()
                .unwrap_or_default()
                .split([' ', '\t', ';', '&', '|', '(', ')']);
            !words.any(|word| word.starts_with('#'))
        });
        before = joined.unwrap_or(before).trim_end_matches([' ', '\t']);
        let word = before
            .rsplit([' ', '\t', '\n', ';', '&', '|', '(', ')'])
            .next()
            .unwrap_or_default();
        match word {
            "time" => time = true,
            // bash stores `time --` as `time -p`.
            "-p" | "--" => posix = true,
            "!" => not = !not,
            _ => break,
        }
        before = &before[..before.len() - word.len()];
    }
    format!(
        "{}{}{}",
        if time { "time " } else { "" },
        if time && posix { "-p " } else { "" },
        if not { "! " } else { "" }
    )
}

/// Puts the last command of a list in the background, as `&` does, not the list.
fn background<'s>(first: Node<'s>, second: Option<Node<'s>>) -> Node<'s> {
    match first {
        Node::Both(before, ";", Some(last)) => {
            Node::Both(before, ";", Some(Box::new(background(*last, second))))
        }
        first => both(first, "&", second),
    }
}

/// Converts a list to the structure of bash; `None` if it is empty.
pub(super) fn list<'s>(script: &'s Script, items: &'s List, inline: bool) -> Option<Node<'s>> {
    let mut whole: Option<(Node<'_>, &'static str)> = None;
    let mut chain: Option<Node<'_>> = None;
    for (at, item) in items.iter().enumerate() {
        let last = item.commands.last()?;
        let end = last
            .redirects
            .iter()
            .map(|redirect| redirect.range.end)
            .fold(last.range.end, usize::max);
        let rest = script.source[end..].replace("\\\n", "");
        let rest = rest.trim_start_matches([' ', '\t']);
        let node = pipeline(&item.commands)?;
        let flags = flags(script, item);
        let node = if flags.is_empty() {
            node
        } else {
            Node::Flagged(flags, Box::new(node))
        };
        let before = items[..at].last().map(|item| item.commands.last());
        let node = match (chain.take(), before) {
            (Some(chain), Some(Some(before))) if item.is_conditional => {
                let gap =
                    script.source[before.range.end..].trim_start_matches([' ', '\t', '\\', '\n']);
                both(
                    chain,
                    if gap.starts_with("&&") { "&&" } else { "||" },
                    Some(node),
                )
            }
            (None, _) => node,
            _ => return None,
        };
        if items.get(at + 1).is_some_and(|next| next.is_conditional) {
            chain = Some(node);
            continue;
        }
        let after = if item.background {
            "&"
        } else if rest.starts_with(';') || !inline {
            ";"
        } else {
            "\n"
        };
        let joined = match whole.take() {
            None => node,
            Some((before, "&")) => background(before, Some(node)),
            Some((before, sign)) => both(before, sign, Some(node)),
        };
        whole = Some((joined, after));
    }
    match whole {
        Some((node, "&")) => Some(background(node, None)),
        Some((node, _)) => Some(node),
        None => None,
    }
}
