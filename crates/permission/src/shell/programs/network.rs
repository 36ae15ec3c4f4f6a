//! Effects of `curl` and `wget` on files: an address may name a file, an option may contain one,
//! and a download is named after the end of its address.

use percent_encoding::percent_decode_str;

use super::read::{GivenOption, ParsedArgs};
use super::table::{OptionEffect, Utility};
use super::{EffectCollector, PathEffect, UnitEffect, globs};
use crate::shell::expand::Arg;
use crate::shell::unit::Effect;
use crate::{Access, Action};

fn values<'r>(reading: &'r ParsedArgs, names: &[&str]) -> Vec<&'r Arg> {
    let options = reading
        .options
        .iter()
        .filter(|option| names.contains(&&*option.name));
    options.filter_map(|option| option.value.as_ref()).collect()
}

fn require_question(collector: &mut EffectCollector<'_>, reason: &str) {
    collector.add(UnitEffect::Minimum(Action::Ask, reason.to_owned()));
}

/// Returns the scheme and host of a plain address. `None` if readers of addresses might disagree
/// about it.
fn host_of(address: &str) -> Option<&str> {
    let scheme = ["https://", "http://"]
        .into_iter()
        .find(|scheme| address.starts_with(scheme))?;
    let rest = &address[scheme.len()..];
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_plain = host
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b".-:".contains(&byte));
    if !is_plain || host.is_empty() || address.contains(['{', '[', '\\', ' ']) {
        return None;
    }
    Some(&address[..scheme.len() + host.len()])
}

/// Adds the only host that `curl` contacts, if it just prints the answer. Options that save, send
/// or name a file, or lead to another host, do not count as plain.
fn single_host(collector: &mut EffectCollector<'_>, reading: &ParsedArgs) {
    const PLAIN: &[&str] = &[
        "-f",
        "-s",
        "-S",
        "-v",
        "-i",
        "-I",
        "-g",
        "-k",
        "-A",
        "-e",
        "-m",
        "-H",
        "--fail",
        "--silent",
        "--show-error",
        "--insecure",
        "--verbose",
        "--include",
        "--head",
        "--user-agent",
        "--max-time",
        "--connect-timeout",
        "--retry",
        "--compressed",
        "--header",
    ];
    let [address] = reading.operands.as_slice() else {
        return;
    };
    let is_plain = |option: &GivenOption| {
        let value = option.value.as_ref();
        let is_file = option.does == Some(OptionEffect::Sends)
            && value.is_some_and(|value| value.prefix().starts_with(['@', '<']));
        option.does.is_some()
            && PLAIN.contains(&&*option.name)
            && value.is_none_or(Arg::known)
            && !is_file
    };
    if !reading.may_have_unknown_option
        && !reading.may_have_unknown_words
        && reading.options.iter().all(is_plain)
        && let Some(host) = address.text().and_then(host_of)
    {
        collector.add(PathEffect::Reaches(format!("curl {host}")));
    }
}

/// Adds the only remote to which `git push` sends the usual branches, without force, deletion or
/// renaming.
pub(super) fn push(collector: &mut EffectCollector<'_>, reading: &ParsedArgs) {
    const PLAIN: [&str; 8] = [
        "-u",
        "--set-upstream",
        "-v",
        "--verbose",
        "-q",
        "--quiet",
        "--progress",
        "--porcelain",
    ];
    let [remote] = reading.operands.as_slice() else {
        return;
    };
    let is_plain = |option: &GivenOption| option.value.is_none() && PLAIN.contains(&&*option.name);
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if let Some(remote) = remote
        .text()
        .filter(|remote| !remote.is_empty() && remote.bytes().all(is_name_byte))
        && !reading.may_have_unknown_option
        && !reading.may_have_unknown_words
        && reading.options.iter().all(is_plain)
    {
        collector.add(PathEffect::Reaches(format!("git push {remote}")));
    }
}

/// Adds effects of `curl` that depend on several options.
pub(super) fn curl(collector: &mut EffectCollector<'_>, program: &Utility, reading: &ParsedArgs) {
    single_host(collector, reading);
    for url in values(reading, &["--url"]) {
        if url.prefix().starts_with('@') {
            require_question(collector, "the addresses it opens are in a file");
        }
        address(collector, program, reading, url);
    }
    let defaults_to_file = |scheme: &&Arg| {
        scheme
            .text()
            .is_none_or(|text| text.eq_ignore_ascii_case("file"))
    };
    if values(reading, &["--proto-default"])
        .iter()
        .any(defaults_to_file)
    {
        require_question(collector, "its addresses may be files");
    }
    if collector
        .all
        .iter()
        .any(|arg| arg.prefix().starts_with("--expand-"))
    {
        require_question(
            collector,
            "an option of it is computed from variables of its own",
        );
    }
    let dirs = values(reading, &["--output-dir"]);
    for output in values(reading, &["-o", "--output"]) {
        // `#1` is the text of the first braces of the address.
        let has_number = |(at, _): (usize, &str)| {
            output.prefix()[at + 1..].starts_with(|c: char| c.is_ascii_digit())
        };
        if output.prefix().match_indices('#').any(has_number) {
            collector.uses(Access::Edit, &Arg::unknown(&output.raw));
        }
        for (dir, name) in dirs
            .iter()
            .filter_map(|dir| Some((dir.text()?, output.text()?)))
        {
            collector.uses(Access::Edit, &Arg::exact(format!("{dir}/{name}")));
        }
    }
    for format in values(reading, &["-w", "--write-out"]) {
        if format.prefix().starts_with('@') {
            require_question(collector, "its format may name files that it writes");
        }
        let outputs = format.prefix().split("%output{").skip(1);
        for name in outputs.map(|rest| rest.split('}').next().unwrap_or(rest)) {
            let whole = format.known() || format.prefix().contains(&format!("{name}}}"));
            let file = Arg::exact(name.trim_start_matches(">>").trim());
            collector.uses(Access::Edit, &if whole { file } else { Arg::unknown(name) });
        }
    }
    let uploads = values(reading, &["-T", "--upload-file"])
        .into_iter()
        .filter_map(Arg::text);
    for upload in uploads.filter(|text| text.contains(['{', '['])) {
        match spelled(upload) {
            Some(files) => files
                .into_iter()
                .for_each(|file| collector.uses(Access::Read, &Arg::exact(file))),
            None => collector.uses(Access::Read, &Arg::unknown("")),
        }
    }
}

/// Adds files in a text after a sign: `-d @file`, `-F name=@file,file;headers=@file`, `-b file`.
pub(super) fn sends(collector: &mut EffectCollector<'_>, option: &GivenOption) {
    let Some(value) = &option.value else { return };
    let is_form = matches!(&*option.name, "-F" | "--form");
    if let Some(text) = value.text()
        && is_form
        && text.contains(['@', '<'])
    {
        for (at, part) in text.split([',', ';']).enumerate() {
            // A further file is given without a name, a setting has one.
            let name = match part.find(['@', '<']) {
                Some(sign) => &part[sign + 1..],
                None if at > 0 && !part.contains('=') => part,
                None => continue,
            };
            collector.uses(Access::Read, &Arg::exact(name.trim().trim_matches('"')));
        }
    } else if let Some(at) = value.prefix().find(['@', '<']) {
        let file = value.after(at + 1);
        let file = file
            .text()
            .and_then(|text| text.split(';').next())
            .map_or(file.clone(), Arg::exact);
        collector.uses(Access::Read, &file);
    } else if !value.known() {
        collector.effect(Effect::Unproven);
    } else if matches!(&*option.name, "-b" | "--cookie") && !value.prefix().contains('=') {
        collector.uses(Access::Read, value);
    }
}

/// Adds an address that is opened; the download may become a file.
pub(super) fn address(
    collector: &mut EffectCollector<'_>,
    program: &Utility,
    reading: &ParsedArgs,
    arg: &Arg,
) {
    let fetched = program.effect == Effect::Writes
        || reading.has(&["-O", "--remote-name", "--remote-name-all"]);
    let Some(texts) = arg.texts() else {
        if file_of(arg.prefix()).is_some() {
            collector.uses(Access::Read, arg);
        }
        return;
    };
    for text in texts {
        let globs = program.name == "curl" && !reading.has(&["-g", "--globoff"]);
        let Some(all) = (if globs {
            spelled(text)
        } else {
            Some(vec![text.clone()])
        }) else {
            require_question(collector, "it opens more addresses than are examined");
            continue;
        };
        for text in all {
            if let Some(path) = file_of(&text) {
                collector.uses(Access::Read, &Arg::exact(path.as_str()));
                if reading.has(&["-T", "--upload-file"]) {
                    collector.uses(Access::Edit, &Arg::exact(path));
                }
            }
            if fetched {
                named_by_address(collector, program, reading, &text);
            }
        }
    }
}

/// Returns the file that an address names; `None` for an address on the network.
fn file_of(address: &str) -> Option<String> {
    let address = address.trim_start();
    let rest = address
        .get(..5)
        .filter(|start| start.eq_ignore_ascii_case("file:"))
        .map(|_| &address[5..])?;
    let path = rest
        .strip_prefix("//")
        .map_or(rest, |rest| rest.find('/').map_or(rest, |at| &rest[at..]));
    let path = path.split(['?', '#']).next().unwrap_or_default();
    Some(percent_decode_str(path).decode_utf8_lossy().into_owned())
}

/// Expands the braces and ranges in an address of `curl`. `None` if there are too many.
fn spelled(address: &str) -> Option<Vec<String>> {
    const MAX_ADDRESSES: usize = 256;
    let mut done = vec![];
    let mut open = globs::alternatives(address)?;
    while let Some(text) = open.pop() {
        match first_range(&text) {
            Some((start, end, letters)) => {
                open.extend(
                    letters
                        .iter()
                        .map(|letter| format!("{}{letter}{}", &text[..start], &text[end..])),
                );
            }
            None => done.push(text),
        }
        if done.len() + open.len() > MAX_ADDRESSES {
            return None;
        }
    }
    Some(done)
}

/// Returns the first `[a-z]` or `[1-9]` in a text: its start, its end and its values. For numbers,
/// the first and the last one suffice. Other text in brackets is a host.
fn first_range(text: &str) -> Option<(usize, usize, Vec<String>)> {
    text.match_indices('[').find_map(|(start, _)| {
        let end = text[start..].find(']').map(|at| at + start)?;
        let (from, to) = text[start + 1..end].split(':').next()?.split_once('-')?;
        let values = match (from.as_bytes(), to.as_bytes()) {
            _ if is_number(from) && is_number(to) => vec![from.to_owned(), to.to_owned()],
            ([from], [to]) if from.is_ascii_alphabetic() && to.is_ascii_alphabetic() => {
                (*from.min(to)..=*from.max(to))
                    .map(|byte| char::from(byte).to_string())
                    .collect()
            }
            _ => return None,
        };
        Some((start, end + 1, values))
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Adds the files that a download from an address may become.
fn named_by_address(
    collector: &mut EffectCollector<'_>,
    program: &Utility,
    reading: &ParsedArgs,
    address: &str,
) {
    let plain = address.split(['?', '#']).next().unwrap_or_default();
    let plain = plain.split_once("://").map_or(plain, |(_, rest)| rest);
    let Some((host, path)) = plain.split_once('/') else {
        return;
    };
    // `wget` decodes names, and ignores `..`.
    let decoded = percent_decode_str(path).decode_utf8_lossy().into_owned();
    let mut files = vec![];
    for path in [path, decoded.as_str()] {
        let parts: Vec<&str> = path
            .split('/')
            .filter(|part| !matches!(*part, "" | "." | ".."))
            .collect();
        if path.ends_with('/') {
            continue;
        }
        let Some(name) = parts.last() else { continue };
        files.push((*name).to_owned());
        if program.name != "curl" && makes_folders(reading) {
            let shorter = if reading.has(&["--cut-dirs"]) {
                parts.len()
            } else {
                1
            };
            files.extend((0..shorter).map(|from| parts[from..].join("/")));
            files.push(format!("{host}/{}", parts.join("/")));
        }
    }
    files.sort();
    files.dedup();
    let dirs: &[&str] = if program.name == "curl" {
        &["--output-dir"]
    } else {
        &["-P", "--directory-prefix"]
    };
    let dirs = values(reading, dirs);
    for file in files {
        collector.uses(Access::Edit, &Arg::exact(file.as_str()));
        for dir in dirs.iter().filter_map(|dir| dir.text()) {
            collector.uses(Access::Edit, &Arg::exact(format!("{dir}/{file}")));
        }
    }
}

/// Returns whether `wget` fetches more than the given address, or creates the directories of an
/// address.
fn makes_folders(reading: &ParsedArgs) -> bool {
    reading.has(&["-x", "--force-directories"]) || fetches_more(reading)
}

fn fetches_more(reading: &ParsedArgs) -> bool {
    reading.has(&[
        "-r",
        "--recursive",
        "-m",
        "--mirror",
        "-p",
        "--page-requisites",
    ])
}

/// Handles `wget`: without a directory for the host, recursively fetched files may become any file
/// here.
pub(super) fn wget(collector: &mut EffectCollector<'_>, reading: &ParsedArgs) {
    // `-nH` and `-nd` are parsed as two letters each.
    let letters = reading.has(&["-n"]) && reading.has(&["-H", "-d"]);
    if fetches_more(reading)
        && (letters || reading.has(&["--no-host-directories", "--no-directories"]))
    {
        require_question(collector, "the other side chooses which file it writes");
    }
}

#[cfg(test)]
mod tests {
    use super::super::CommandContext;
    use super::super::ProgramEffect;
    use super::*;
    use crate::shell::expand::{ShellState, StdinSource};

    #[test]
    fn file_addresses_name_files() {
        let files = [
            ("file:///etc/passwd", "/etc/passwd"),
            ("FILE://localhost/x", "/x"),
            ("file:/x?y", "/x"),
            (" file:///a%62#c", "/ab"),
            ("file:////x", "//x"),
        ];
        for (address, path) in files {
            assert_eq!(file_of(address).as_deref(), Some(path), "{address}");
        }
        for address in ["http://h/file:///x", "files://x", "file", "h"] {
            assert_eq!(file_of(address), None, "{address}");
        }
    }

    #[test]
    fn braces_and_ranges_in_addresses_are_expanded() {
        let table: [(&str, &[&str]); 6] = [
            ("{file}:///x", &["file:///x"]),
            ("fil[e-e]://{a,b}", &["file://a", "file://b"]),
            (
                "http://[::1]:80/[1-30]",
                &["http://[::1]:80/1", "http://[::1]:80/30"],
            ),
            (
                "http://h/[a-c:2]",
                &["http://h/a", "http://h/b", "http://h/c"],
            ),
            ("http://h/?a[]=1", &["http://h/?a[]=1"]),
            ("http://[fe80::1-2]/", &["http://[fe80::1-2]/"]),
        ];
        for (address, wanted) in table {
            let mut found = spelled(address).unwrap();
            found.sort();
            assert_eq!(found, wanted, "{address}");
        }
        assert_eq!(spelled("[a-z][a-z]"), None);
    }

    /// An upload to the address of a file writes that file.
    #[test]
    fn upload_to_a_file_address_writes_the_file() {
        let state = ShellState::default();
        let context = CommandContext {
            state: &state,
            input: StdinSource::Nothing,
            has_selected_names: false,
        };
        let writes = |words: &[&str]| {
            let args: Vec<Arg> = words.iter().map(|word| Arg::exact(*word)).collect();
            let effects = super::super::effects_of("curl", &args, &context);
            effects.iter().any(|effect| matches!(effect, ProgramEffect::Path(PathEffect::Use(Access::Edit, path)) if path.is("/x/y")))
        };
        assert!(writes(&["-T", "a.txt", "file:///x/y"]));
        assert!(writes(&[
            "--upload-file",
            "a.txt",
            "--url",
            "{file}:///x/y"
        ]));
        assert!(!writes(&["file:///x/y"]));
    }
}
