//! What `curl` and `wget` do to files: an address may name one, an option may hold one among other text,
//! and what is fetched is called like the end of its address.

use percent_encoding::percent_decode_str;

use super::read::{GivenOption, ParsedArgs};
use super::table::{Does, Utility};
use super::{Deed, Judge, globs};
use crate::shell::expand::Arg;
use crate::shell::unit::Effect;
use crate::{Access, Action};

fn values<'r>(reading: &'r ParsedArgs, names: &[&str]) -> Vec<&'r Arg> {
    let given = reading.given.iter().filter(|given| names.contains(&&*given.name));
    given.filter_map(|given| given.value.as_ref()).collect()
}

fn ask(judge: &mut Judge<'_>, reason: &str) {
    judge.add(Deed::Floor(Action::Ask, reason.to_owned()));
}

/// Returns the scheme and host of an address that says no more than that and where to go there: as far as readers of
/// addresses might disagree, there is none.
fn host_of(address: &str) -> Option<&str> {
    let scheme = ["https://", "http://"].into_iter().find(|scheme| address.starts_with(scheme))?;
    let rest = &address[scheme.len()..];
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let plain = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:".contains(&byte));
    (plain && !host.is_empty() && !address.contains(['{', '[', '\\', ' ']))
        .then(|| &address[..scheme.len() + host.len()])
}

/// Notes the one host that `curl` asks, where it does nothing but show what that answers. Options that save, send or
/// name a file, or lead elsewhere, are not among these.
fn one_host(judge: &mut Judge<'_>, reading: &ParsedArgs) {
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
    let [address] = reading.operands.as_slice() else { return };
    let plain = |given: &GivenOption| {
        let value = given.value.as_ref();
        let file = given.does == Some(Does::Sends) && value.is_some_and(|value| value.prefix().starts_with(['@', '<']));
        given.does.is_some() && PLAIN.contains(&&*given.name) && value.is_none_or(Arg::known) && !file
    };
    if !reading.unknown
        && !reading.words
        && reading.given.iter().all(plain)
        && let Some(host) = address.text().and_then(host_of)
    {
        judge.add(Deed::Reaches(format!("curl {host}")));
    }
}

/// Notes the one remote that `git push` sends the usual branches to: nothing is forced, deleted or given another name.
pub(super) fn push(judge: &mut Judge<'_>, reading: &ParsedArgs) {
    const PLAIN: [&str; 8] = ["-u", "--set-upstream", "-v", "--verbose", "-q", "--quiet", "--progress", "--porcelain"];
    let [remote] = reading.operands.as_slice() else { return };
    let plain = |given: &GivenOption| given.value.is_none() && PLAIN.contains(&&*given.name);
    let name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if let Some(remote) = remote.text().filter(|remote| !remote.is_empty() && remote.bytes().all(name))
        && !reading.unknown
        && !reading.words
        && reading.given.iter().all(plain)
    {
        judge.add(Deed::Reaches(format!("git push {remote}")));
    }
}

/// What `curl` does besides what its options say.
pub(super) fn curl(judge: &mut Judge<'_>, program: &Utility, reading: &ParsedArgs) {
    one_host(judge, reading);
    for url in values(reading, &["--url"]) {
        if url.prefix().starts_with('@') {
            ask(judge, "which addresses it opens stands in a file");
        }
        address(judge, program, reading, url);
    }
    let file_by_default = |scheme: &&Arg| scheme.text().is_none_or(|text| text.eq_ignore_ascii_case("file"));
    if values(reading, &["--proto-default"]).iter().any(file_by_default) {
        ask(judge, "its addresses may be files");
    }
    if judge.all.iter().any(|arg| arg.prefix().starts_with("--expand-")) {
        ask(judge, "an option of it is computed from variables of its own");
    }
    let dirs = values(reading, &["--output-dir"]);
    for output in values(reading, &["-o", "--output"]) {
        // `#1` is what stood in the first braces of the address.
        let numbered = |(at, _): (usize, &str)| output.prefix()[at + 1..].starts_with(|c: char| c.is_ascii_digit());
        if output.prefix().match_indices('#').any(numbered) {
            judge.uses(Access::Edit, &Arg::unknown(&output.raw));
        }
        for (dir, name) in dirs.iter().filter_map(|dir| Some((dir.text()?, output.text()?))) {
            judge.uses(Access::Edit, &Arg::exact(format!("{dir}/{name}")));
        }
    }
    for format in values(reading, &["-w", "--write-out"]) {
        if format.prefix().starts_with('@') {
            ask(judge, "which files it writes may stand in its format");
        }
        let outputs = format.prefix().split("%output{").skip(1);
        for name in outputs.map(|rest| rest.split('}').next().unwrap_or(rest)) {
            let whole = format.known() || format.prefix().contains(&format!("{name}}}"));
            let file = Arg::exact(name.trim_start_matches(">>").trim());
            judge.uses(Access::Edit, &if whole { file } else { Arg::unknown(name) });
        }
    }
    let uploads = values(reading, &["-T", "--upload-file"]).into_iter().filter_map(Arg::text);
    for upload in uploads.filter(|text| text.contains(['{', '['])) {
        match spelled(upload) {
            Some(files) => files.into_iter().for_each(|file| judge.uses(Access::Read, &Arg::exact(file))),
            None => judge.uses(Access::Read, &Arg::unknown("")),
        }
    }
}

/// Text that may name a file behind a sign: `-d @file`, `-F name=@file,file;headers=@file`, `-b file`.
pub(super) fn sends(judge: &mut Judge<'_>, given: &GivenOption) {
    let Some(value) = &given.value else { return };
    let form = matches!(&*given.name, "-F" | "--form");
    if let Some(text) = value.text().filter(|text| form && text.contains(['@', '<'])) {
        for (at, part) in text.split([',', ';']).enumerate() {
            // A further file stands there alone, a setting has a name.
            let name = match part.find(['@', '<']) {
                Some(sign) => &part[sign + 1..],
                None if at > 0 && !part.contains('=') => part,
                None => continue,
            };
            judge.uses(Access::Read, &Arg::exact(name.trim().trim_matches('"')));
        }
    } else if let Some(at) = value.prefix().find(['@', '<']) {
        let file = value.after(at + 1);
        let file = file.text().and_then(|text| text.split(';').next()).map_or(file.clone(), Arg::exact);
        judge.uses(Access::Read, &file);
    } else if !value.known() {
        judge.effect(Effect::Unproven);
    } else if matches!(&*given.name, "-b" | "--cookie") && !value.prefix().contains('=') {
        judge.uses(Access::Read, value);
    }
}

/// An address that is opened; what is fetched from it may become a file.
pub(super) fn address(judge: &mut Judge<'_>, program: &Utility, reading: &ParsedArgs, arg: &Arg) {
    let fetched = program.effect == Effect::Writes || reading.has(&["-O", "--remote-name", "--remote-name-all"]);
    let Some(texts) = arg.texts() else {
        if file_of(arg.prefix()).is_some() {
            judge.uses(Access::Read, arg);
        }
        return;
    };
    for text in texts {
        let globs = program.name == "curl" && !reading.has(&["-g", "--globoff"]);
        let Some(all) = (if globs { spelled(text) } else { Some(vec![text.clone()]) }) else {
            ask(judge, "it opens more addresses than are looked at");
            continue;
        };
        for text in all {
            if let Some(path) = file_of(&text) {
                judge.uses(Access::Read, &Arg::exact(path.as_str()));
                if reading.has(&["-T", "--upload-file"]) {
                    judge.uses(Access::Edit, &Arg::exact(path));
                }
            }
            if fetched {
                named_by_address(judge, program, reading, &text);
            }
        }
    }
}

/// The file that an address names; none where it is of the network.
fn file_of(address: &str) -> Option<String> {
    let address = address.trim_start();
    let rest = address.get(..5).filter(|start| start.eq_ignore_ascii_case("file:")).map(|_| &address[5..])?;
    let path = rest.strip_prefix("//").map_or(rest, |rest| rest.find('/').map_or(rest, |at| &rest[at..]));
    let path = path.split(['?', '#']).next().unwrap_or_default();
    Some(percent_decode_str(path).decode_utf8_lossy().into_owned())
}

/// What the braces and ranges in an address of `curl` spell. None where that is more than is looked at.
fn spelled(address: &str) -> Option<Vec<String>> {
    const MOST: usize = 256;
    let (mut done, mut open) = (vec![], globs::alternatives(address)?);
    while let Some(text) = open.pop() {
        match first_range(&text) {
            Some((start, end, letters)) => {
                open.extend(letters.iter().map(|letter| format!("{}{letter}{}", &text[..start], &text[end..])));
            }
            None => done.push(text),
        }
        if done.len() + open.len() > MOST {
            return None;
        }
    }
    Some(done)
}

/// The first `[a-z]` or `[1-9]` in a text: where it begins and ends, and what it stands for. Of numbers the first
/// and the last do. What else stands in brackets is a host.
fn first_range(text: &str) -> Option<(usize, usize, Vec<String>)> {
    text.match_indices('[').find_map(|(start, _)| {
        let end = text[start..].find(']').map(|at| at + start)?;
        let (from, to) = text[start + 1..end].split(':').next()?.split_once('-')?;
        let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let values = match (from.as_bytes(), to.as_bytes()) {
            _ if number(from) && number(to) => vec![from.to_owned(), to.to_owned()],
            ([from], [to]) if from.is_ascii_alphabetic() && to.is_ascii_alphabetic() => {
                (*from.min(to)..=*from.max(to)).map(|byte| char::from(byte).to_string()).collect()
            }
            _ => return None,
        };
        Some((start, end + 1, values))
    })
}

/// The files that what comes from an address may become.
fn named_by_address(judge: &mut Judge<'_>, program: &Utility, reading: &ParsedArgs, address: &str) {
    let plain = address.split(['?', '#']).next().unwrap_or_default();
    let plain = plain.split_once("://").map_or(plain, |(_, rest)| rest);
    let Some((host, path)) = plain.split_once('/') else { return };
    // `wget` decodes names, and `..` leads nowhere.
    let decoded = percent_decode_str(path).decode_utf8_lossy().into_owned();
    let mut files = vec![];
    for path in [path, decoded.as_str()] {
        let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
        let Some(name) = parts.last().filter(|_| !path.ends_with('/')) else { continue };
        files.push((*name).to_owned());
        if program.name != "curl" && makes_folders(reading) {
            let shorter = if reading.has(&["--cut-dirs"]) { parts.len() } else { 1 };
            files.extend((0..shorter).map(|from| parts[from..].join("/")));
            files.push(format!("{host}/{}", parts.join("/")));
        }
    }
    files.sort();
    files.dedup();
    let dirs: &[&str] = if program.name == "curl" { &["--output-dir"] } else { &["-P", "--directory-prefix"] };
    let dirs = values(reading, dirs);
    for file in files {
        judge.uses(Access::Edit, &Arg::exact(file.as_str()));
        for dir in dirs.iter().filter_map(|dir| dir.text()) {
            judge.uses(Access::Edit, &Arg::exact(format!("{dir}/{file}")));
        }
    }
}

/// Whether `wget` fetches more than it is told, or makes the folders of an address.
fn makes_folders(reading: &ParsedArgs) -> bool {
    reading.has(&["-x", "--force-directories"]) || fetches_more(reading)
}

fn fetches_more(reading: &ParsedArgs) -> bool {
    reading.has(&["-r", "--recursive", "-m", "--mirror", "-p", "--page-requisites"])
}

/// Without a folder of its host, what `wget` finds on its way may become any file here.
pub(super) fn wget(judge: &mut Judge<'_>, reading: &ParsedArgs) {
    // `-nH` and `-nd` are read as two letters each.
    let letters = reading.has(&["-n"]) && reading.has(&["-H", "-d"]);
    if fetches_more(reading) && (letters || reading.has(&["--no-host-directories", "--no-directories"])) {
        ask(judge, "the other side chooses which file it writes");
    }
}

#[cfg(test)]
mod tests {
    use super::super::CommandContext;
    use super::*;
    use crate::shell::expand::{ShellState, StdinSource};

    #[test]
    fn addresses_of_files() {
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
    fn what_an_address_spells() {
        let table: [(&str, &[&str]); 6] = [
            ("{file}:///x", &["file:///x"]),
            ("fil[e-e]://{a,b}", &["file://a", "file://b"]),
            ("http://[::1]:80/[1-30]", &["http://[::1]:80/1", "http://[::1]:80/30"]),
            ("http://h/[a-c:2]", &["http://h/a", "http://h/b", "http://h/c"]),
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

    /// What is sent to an address of a file becomes that file.
    #[test]
    fn an_upload_may_write_a_file() {
        let state = ShellState::default();
        let view = CommandContext { state: &state, input: StdinSource::Nothing, picked: false };
        let writes = |words: &[&str]| {
            let args: Vec<Arg> = words.iter().map(|word| Arg::exact(*word)).collect();
            let deeds = super::super::judge("curl", &args, &view);
            deeds.iter().any(|deed| matches!(deed, Deed::Use(Access::Edit, path) if path.is("/x/y")))
        };
        assert!(writes(&["-T", "a.txt", "file:///x/y"]));
        assert!(writes(&["--upload-file", "a.txt", "--url", "{file}:///x/y"]));
        assert!(!writes(&["file:///x/y"]));
    }
}
