//! Programs that read directories recursively: the conditions, and the names that they skip.

use super::read::ParsedArgs;
use super::table::Utility;
use super::{EffectCollector, NameSelection, PathEffect, UnitEffect, globs};
use crate::Access;
use crate::shell::expand::{Arg, StdinSource};
use crate::wildcard::glob_to_wildcard;

/// Options with which ripgrep or `ag` also reads hidden files.
const HIDDEN: [&str; 6] = [
    "--hidden",
    "-u",
    "--no-ignore",
    "--unrestricted",
    "-.",
    "--ignore-file",
];

/// Returns whether the program reads directories among its words recursively.
pub(super) fn is_deep(program: &Utility, reading: &ParsedArgs) -> bool {
    // `grep -d recurse`, which may be abbreviated.
    let recurses = || {
        let actions = values(reading, &["-d", "--directories"]);
        program.special == "grep"
            && actions
                .into_iter()
                .any(|value| value.text().is_none_or(|text| text.starts_with("rec")))
    };
    reading.has(&program.recursive_options) || recurses()
}

fn values<'r>(reading: &'r ParsedArgs, names: &[&str]) -> Vec<&'r Arg> {
    let options = reading
        .options
        .iter()
        .filter(|option| names.contains(&&*option.name));
    options.filter_map(|option| option.value.as_ref()).collect()
}

/// Returns the selection by `--include` and `--exclude`.
pub(super) fn picks(reading: &ParsedArgs) -> NameSelection {
    let only = globs::fitting(values(reading, &["--include"]).into_iter());
    // With both, the last one that matches a name wins.
    let excluded = if only.is_empty() {
        values(reading, &["--exclude"])
    } else {
        vec![]
    };
    let not = globs::certain(excluded.into_iter());
    NameSelection { only, not }
}

/// Adds the effects of reading a directory recursively.
pub(super) fn reads_below(collector: &mut EffectCollector<'_>, arg: &Arg, picks: NameSelection) {
    collector.uses(Access::Read, arg);
    collector.add(PathEffect::ReadTree(arg.clone(), picks));
}

/// Adds the directories in options of `diff`, which are compared with those among its words.
pub(super) fn diff(collector: &mut EffectCollector<'_>, reading: &ParsedArgs) {
    for path in values(reading, &["--from-file", "--to-file"]) {
        collector.add(PathEffect::ReadTree(path.clone(), NameSelection::default()));
    }
}

/// Adds the files that ripgrep searches without an option for hidden files. It searches hidden
/// files if a glob or a type names them.
pub(super) fn ripgrep(
    collector: &mut EffectCollector<'_>,
    program: &Utility,
    reading: &ParsedArgs,
) {
    let is_ripgrep = program.name == "rg";
    let named = |names: &[&str]| {
        let named = if is_ripgrep {
            values(reading, names)
        } else {
            vec![]
        };
        named.into_iter().flat_map(globs::texts)
    };
    let positive = named(&["-g", "--glob", "--iglob"]).filter(|glob| !glob.starts_with('!'));
    let wanted: Vec<String> = positive
        .flat_map(|glob| globs::alternatives(&glob).unwrap_or_else(|| vec!["*".to_owned()]))
        .collect();
    let names_hidden = |glob: &String| {
        glob.rsplit('/')
            .next()
            .is_some_and(|name| name.starts_with('.') && name.len() > 1)
    };
    for text in wanted.iter().filter(|glob| names_hidden(glob)) {
        let reason =
            format!("it reads hidden files named {text}, which may hold keys or passwords");
        collector.add(UnitEffect::Secret(text.clone(), reason));
    }
    if reading.has(&HIDDEN) {
        return;
    }
    let without = ["-e", "--regexp", "-f", "--file", "--files", "--type-list"];
    let mut paths: Vec<Arg> = reading
        .operands
        .iter()
        .skip(usize::from(!reading.has(&without)))
        .cloned()
        .collect();
    if paths.is_empty() && collector.context.input == StdinSource::Nothing {
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
            // Hidden files are skipped, but not other files with secrets.
            collector.add(PathEffect::ReadTree(
                path.clone(),
                NameSelection {
                    only: vec![],
                    not: vec![Arg::exact(".*")],
                },
            ));
            if !typed.is_empty() {
                collector.add(PathEffect::ReadTree(
                    path,
                    NameSelection {
                        only: typed.clone(),
                        not: vec![],
                    },
                ));
            }
            continue;
        }
        for glob in &wanted {
            let (dir, name) = anchored(glob);
            let only = vec![Arg::exact(glob_to_wildcard(name))];
            let dir = dir.map_or_else(|| path.clone(), Arg::exact);
            collector.add(PathEffect::ReadTree(
                dir,
                NameSelection { only, not: vec![] },
            ));
        }
    }
}

/// Returns the directory to which a glob is limited, if any, and its last component. A glob with a
/// slash is relative to the directory in which ripgrep starts.
fn anchored(glob: &str) -> (Option<String>, &str) {
    let glob = glob.trim_end_matches('/');
    let Some((dirs, name)) = glob.rsplit_once('/') else {
        return (None, glob);
    };
    let is_literal = |part: &&str| !part.contains(['*', '?', '[', '\\']);
    let known: Vec<&str> = dirs
        .trim_start_matches('/')
        .split('/')
        .take_while(is_literal)
        .collect();
    (Some(format!("./{}", known.join("/"))), name)
}

/// Returns the names of a ripgrep type that may match hidden files with secrets.
fn of_type(kind: &str) -> Vec<Arg> {
    let names: &[&str] = match kind {
        "all" => &["*"],
        "sh" => &[".env", "*.env"],
        "yaml" => &["*.yaml", "*.yml"],
        "config" => &["*.cfg", "*.conf", "*.config", "*.ini"],
        "tf" => &[
            "*.tf",
            "*.tf.json",
            "*.tfvars",
            "*.tfvars.json",
            "*.terraformrc",
            "*.tfrc",
        ],
        "markdown" | "md" => &["*.md"],
        "py" | "python" => &["*.py"],
        "rust" => &["*.rs"],
        "ruby" => &["*.rb"],
        kind => return vec![Arg::exact(format!("*.{kind}"))],
    };
    names.iter().map(|name| Arg::exact(*name)).collect()
}

/// Returns the names that `name:glob` or `name:include:type,type` adds to a type.
fn of_added(added: &str) -> Vec<Arg> {
    let globs = added.split_once(':').map_or("*", |(_, globs)| globs);
    if let Some(kinds) = globs.strip_prefix("include:") {
        return kinds.split(',').flat_map(of_type).collect();
    }
    let globs = globs::alternatives(globs).unwrap_or_else(|| vec!["*".to_owned()]);
    let name =
        |glob: &String| Arg::exact(glob_to_wildcard(glob.rsplit('/').next().unwrap_or(glob)));
    globs.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glob_with_a_slash_is_limited_to_a_directory() {
        let table = [
            ("*.rs", None, "*.rs"),
            ("src/**", Some("./src"), "**"),
            ("/.env", Some("./"), ".env"),
            ("**/x/*.env", Some("./"), "*.env"),
            ("a/b/c*/d", Some("./a/b"), "d"),
            ("sub/", None, "sub"),
        ];
        for (glob, dir, name) in table {
            assert_eq!(anchored(glob), (dir.map(str::to_owned), name), "{glob}");
        }
    }

    #[test]
    fn ripgrep_types_may_match_hidden_files() {
        let names = |args: Vec<Arg>| {
            args.iter()
                .map(|arg| arg.text().unwrap().to_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(names(of_type("sh")), ".env *.env");
        assert_eq!(names(of_type("json")), "*.json");
        assert_eq!(names(of_added("x:{.env,a/[z]}")), ".env ?");
        assert_eq!(names(of_added("x:include:sh,json")), ".env *.env *.json");
        assert_eq!(names(of_added("x")), "*");
    }
}
