//! Programs that read directories to their bottom: when they do, and which names they leave out.

use super::read::ParsedArgs;
use super::table::Utility;
use super::{Deed, Judge, Picks, globs};
use crate::Access;
use crate::shell::expand::{Arg, StdinSource};
use crate::wildcard::generous;

/// Options with which ripgrep, or `ag`, looks at hidden files as well.
const HIDDEN: [&str; 6] = ["--hidden", "-u", "--no-ignore", "--unrestricted", "-.", "--ignore-file"];

/// Whether it reads what lies below the directories among its words, and not only them.
pub(super) fn is_deep(program: &Utility, reading: &ParsedArgs) -> bool {
    // `grep -d recurse`, which may be cut short.
    let recurses = || {
        let given = values(reading, &["-d", "--directories"]);
        program.special == "grep"
            && given.into_iter().any(|value| value.text().is_none_or(|text| text.starts_with("rec")))
    };
    reading.has(&program.deep) || recurses()
}

fn values<'r>(reading: &'r ParsedArgs, names: &[&str]) -> Vec<&'r Arg> {
    let given = reading.given.iter().filter(|given| names.contains(&&*given.name));
    given.filter_map(|given| given.value.as_ref()).collect()
}

/// `--include` and `--exclude` of what reads a directory to its bottom.
pub(super) fn picks(reading: &ParsedArgs) -> Picks {
    let only = globs::fitting(values(reading, &["--include"]).into_iter());
    // Of both, the last one that fits a name counts.
    let excluded = values(reading, &["--exclude"]).into_iter().filter(|_| only.is_empty());
    let not = globs::certain(excluded);
    Picks { only, not }
}

/// A program that is given a directory reads it whole.
pub(super) fn reads_below(judge: &mut Judge<'_>, arg: &Arg, picks: Picks) {
    judge.uses(Access::Read, arg);
    judge.add(Deed::Below(arg.clone(), picks));
}

/// Directories behind options of `diff`, which are compared with those among its words.
pub(super) fn diff(judge: &mut Judge<'_>, reading: &ParsedArgs) {
    for place in values(reading, &["--from-file", "--to-file"]) {
        judge.add(Deed::Below(place.clone(), Picks::default()));
    }
}

/// What ripgrep searches without being told to look at hidden files. What a glob or a type names is
/// searched though it is hidden.
pub(super) fn ripgrep(judge: &mut Judge<'_>, program: &Utility, reading: &ParsedArgs) {
    let ours = program.name == "rg";
    let named = |names: &[&str]| values(reading, names).into_iter().filter(|_| ours).flat_map(globs::texts);
    let positive = named(&["-g", "--glob", "--iglob"]).filter(|glob| !glob.starts_with('!'));
    let wanted: Vec<String> =
        positive.flat_map(|glob| globs::alternatives(&glob).unwrap_or_else(|| vec!["*".to_owned()])).collect();
    let last = |glob: &String| glob.rsplit('/').next().is_some_and(|name| name.starts_with('.') && name.len() > 1);
    for text in wanted.iter().filter(|glob| last(glob)) {
        let reason = format!("it reads hidden files named {text}, which may hold keys or passwords");
        judge.add(Deed::Secret(text.clone(), reason));
    }
    if reading.has(&HIDDEN) {
        return;
    }
    let without = ["-e", "--regexp", "-f", "--file", "--files", "--type-list"];
    let mut paths: Vec<Arg> = reading.operands.iter().skip(usize::from(!reading.has(&without))).cloned().collect();
    if paths.is_empty() && judge.view.input == StdinSource::Nothing {
        paths.push(Arg::exact("."));
    }
    let kinds = named(&["-t", "--type"]).flat_map(|kind| of_type(&kind));
    let added = named(&["--type-add"]).flat_map(|added| of_added(&added));
    let mut typed: Vec<Arg> = kinds.collect();
    if !typed.is_empty() {
        typed.extend(added);
    }
    for path in paths {
        if wanted.is_empty() {
            // Hidden files are left out, keys and passwords in others are not.
            judge.add(Deed::Below(path.clone(), Picks { only: vec![], not: vec![Arg::exact(".*")] }));
            if !typed.is_empty() {
                judge.add(Deed::Below(path, Picks { only: typed.clone(), not: vec![] }));
            }
            continue;
        }
        for glob in &wanted {
            let (place, name) = anchored(glob);
            let only = vec![Arg::exact(generous(name))];
            let place = place.map_or_else(|| path.clone(), Arg::exact);
            judge.add(Deed::Below(place, Picks { only, not: vec![] }));
        }
    }
}

/// The directory in which a glob holds, where it names one, and what stands at its end. One with a slash in
/// it begins where ripgrep does.
fn anchored(glob: &str) -> (Option<String>, &str) {
    let glob = glob.trim_end_matches('/');
    let Some((dirs, name)) = glob.rsplit_once('/') else { return (None, glob) };
    let plain = |part: &&str| !part.contains(['*', '?', '[', '\\']);
    let known: Vec<&str> = dirs.trim_start_matches('/').split('/').take_while(plain).collect();
    (Some(format!("./{}", known.join("/"))), name)
}

/// The names of a type of ripgrep among which hidden files with secrets may be.
fn of_type(kind: &str) -> Vec<Arg> {
    let names: &[&str] = match kind {
        "all" => &["*"],
        "sh" => &[".env", "*.env"],
        "yaml" => &["*.yaml", "*.yml"],
        "config" => &["*.cfg", "*.conf", "*.config", "*.ini"],
        "tf" => &["*.tf", "*.tf.json", "*.tfvars", "*.tfvars.json", "*.terraformrc", "*.tfrc"],
        "markdown" | "md" => &["*.md"],
        "py" | "python" => &["*.py"],
        "rust" => &["*.rs"],
        "ruby" => &["*.rb"],
        kind => return vec![Arg::exact(format!("*.{kind}"))],
    };
    names.iter().map(|name| Arg::exact(*name)).collect()
}

/// What `name:glob` or `name:include:type,type` adds to a type.
fn of_added(added: &str) -> Vec<Arg> {
    let globs = added.split_once(':').map_or("*", |(_, globs)| globs);
    if let Some(kinds) = globs.strip_prefix("include:") {
        return kinds.split(',').flat_map(of_type).collect();
    }
    let globs = globs::alternatives(globs).unwrap_or_else(|| vec!["*".to_owned()]);
    let name = |glob: &String| Arg::exact(generous(glob.rsplit('/').next().unwrap_or(glob)));
    globs.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_with_a_slash_hold_in_one_place() {
        let table = [
            ("*.rs", None, "*.rs"),
            ("src/**", Some("./src"), "**"),
            ("/.env", Some("./"), ".env"),
            ("**/x/*.env", Some("./"), "*.env"),
            ("a/b/c*/d", Some("./a/b"), "d"),
            ("sub/", None, "sub"),
        ];
        for (glob, place, name) in table {
            assert_eq!(anchored(glob), (place.map(str::to_owned), name), "{glob}");
        }
    }

    #[test]
    fn types_of_ripgrep_may_name_hidden_files() {
        let names =
            |args: Vec<Arg>| args.iter().map(|arg| arg.text().unwrap().to_owned()).collect::<Vec<_>>().join(" ");
        assert_eq!(names(of_type("sh")), ".env *.env");
        assert_eq!(names(of_type("json")), "*.json");
        assert_eq!(names(of_added("x:{.env,a/[z]}")), ".env ?");
        assert_eq!(names(of_added("x:include:sh,json")), ".env *.env *.json");
        assert_eq!(names(of_added("x")), "*");
    }
}
