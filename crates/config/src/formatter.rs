//! Formatters: the known ones, the projects that each is for, and the changes that the settings
//! make.
//!
//! To add one, add a line to `KNOWN_FORMATTERS`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::file::{Formatter, OnOrNamed};
use base::environment::Environment;

/// A formatter that may run after an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatterEntry {
    /// OpenCode's name of a known formatter, otherwise the key in the settings.
    pub name: String,
    /// The program and its arguments, in which `$FILE` is the file; never empty.
    pub command: Vec<String>,
    /// The extensions it is for, with their dot.
    pub extensions: Vec<String>,
    /// Variables for it, in addition to those of commands.
    pub environment: Vec<(String, String)>,
    /// The condition under which a known formatter runs. `None` for a command of the user's own,
    /// which always runs.
    condition: Option<RunCondition>,
    /// True if it loads code of the project, such as plug-ins.
    loads_code: bool,
}

/// The condition under which a formatter applies to a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunCondition {
    Found,
    /// A `package.json` or `composer.json` between the file and the root of the project depends on
    /// it.
    Dependency(&'static str),
    /// One of these files exists there.
    Settings(&'static [&'static str]),
    /// One of these files exists there, and contains the word unless that is empty.
    Mentioned(&'static [(&'static str, &'static str)]),
}

struct KnownFormatter {
    name: &'static str,
    /// Arguments separated by single spaces.
    command: &'static str,
    extensions: &'static str,
    condition: RunCondition,
    loads_code: bool,
}

const WEB: &str = ".js .jsx .mjs .cjs .ts .tsx .mts .cts .html .htm .css .scss .sass .less .vue .svelte .json .jsonc \
                   .yaml .yml .toml .xml .md .mdx .graphql .gql";
const RUFF: RunCondition = RunCondition::Mentioned(&[
    ("ruff.toml", ""),
    (".ruff.toml", ""),
    ("pyproject.toml", "ruff"),
    ("requirements.txt", "ruff"),
    ("Pipfile", "ruff"),
]);

const fn known(
    name: &'static str,
    command: &'static str,
    extensions: &'static str,
) -> KnownFormatter {
    KnownFormatter {
        name,
        command,
        extensions,
        condition: RunCondition::Found,
        loads_code: false,
    }
}

/// Formatters that need no command in the settings, with OpenCode's names, in the order in which
/// they run.
const KNOWN_FORMATTERS: &[KnownFormatter] = &[
    known("gofmt", "gofmt -w $FILE", ".go"),
    KnownFormatter {
        loads_code: true,
        ..known(
            "mix",
            "mix format $FILE",
            ".ex .exs .eex .heex .leex .neex .sface",
        )
    },
    KnownFormatter {
        condition: RunCondition::Dependency("prettier"),
        loads_code: true,
        ..known("prettier", "prettier --write $FILE", WEB)
    },
    KnownFormatter {
        condition: RunCondition::Dependency("oxfmt"),
        ..known(
            "oxfmt",
            "oxfmt $FILE",
            ".js .jsx .mjs .cjs .ts .tsx .mts .cts",
        )
    },
    KnownFormatter {
        condition: RunCondition::Settings(&["biome.json", "biome.jsonc"]),
        ..known("biome", "biome format --write $FILE", WEB)
    },
    known("zig", "zig fmt $FILE", ".zig .zon"),
    KnownFormatter {
        condition: RunCondition::Settings(&[".clang-format"]),
        ..known(
            "clang-format",
            "clang-format -i $FILE",
            ".c .cc .cpp .cxx .c++ .h .hh .hpp .hxx .h++ .ino .C .H",
        )
    },
    known("ktlint", "ktlint -F $FILE", ".kt .kts"),
    KnownFormatter {
        condition: RUFF,
        ..known("ruff", "ruff format $FILE", ".py .pyi")
    },
    known("uv", "uv format -- $FILE", ".py .pyi"),
    known("air", "air format $FILE", ".R"),
    KnownFormatter {
        loads_code: true,
        ..known(
            "rubocop",
            "rubocop --autocorrect $FILE",
            ".rb .rake .gemspec .ru",
        )
    },
    KnownFormatter {
        loads_code: true,
        ..known(
            "standardrb",
            "standardrb --fix $FILE",
            ".rb .rake .gemspec .ru",
        )
    },
    known("htmlbeautifier", "htmlbeautifier $FILE", ".erb"),
    known("dart", "dart format $FILE", ".dart"),
    KnownFormatter {
        condition: RunCondition::Settings(&[".ocamlformat"]),
        ..known("ocamlformat", "ocamlformat -i $FILE", ".ml .mli")
    },
    known("terraform", "terraform fmt $FILE", ".tf .tfvars"),
    known("latexindent", "latexindent -w -s $FILE", ".tex"),
    known("gleam", "gleam format $FILE", ".gleam"),
    known("shfmt", "shfmt -w $FILE", ".sh .bash"),
    known("nixfmt", "nixfmt $FILE", ".nix"),
    known("rustfmt", "rustfmt --edition $EDITION $FILE", ".rs"),
    KnownFormatter {
        condition: RunCondition::Dependency("laravel/pint"),
        loads_code: true,
        ..known("pint", "pint $FILE", ".php")
    },
    known("ormolu", "ormolu -i $FILE", ".hs"),
    known(
        "cljfmt",
        "cljfmt fix --quiet $FILE",
        ".clj .cljs .cljc .edn",
    ),
    known("dfmt", "dfmt -i $FILE", ".d"),
];

/// A formatter as it would run on one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatterRun {
    pub name: String,
    /// The path of the program, and its arguments with the file among them.
    pub command: (PathBuf, Vec<String>),
    pub environment: Vec<(String, String)>,
    /// True if the program, or code that it loads, belongs to the project.
    pub of_project: bool,
    /// The directory of its settings, if it looks for them in its working directory.
    pub folder: Option<PathBuf>,
}

/// A requested formatter whose program is not installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingFormatter {
    pub name: String,
    /// The program that was looked up, on `PATH` or below the project's root.
    pub program: String,
}

impl FormatterEntry {
    fn of(known: &KnownFormatter) -> Self {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        Self {
            name: known.name.to_owned(),
            command: words(known.command),
            extensions: words(known.extensions),
            environment: Vec::new(),
            condition: Some(known.condition),
            loads_code: known.loads_code,
        }
    }

    /// Returns whether it is for files of this name.
    pub fn is_for(&self, path: &Path) -> bool {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        self.extensions
            .iter()
            .any(|extension| name.len() > extension.len() && name.ends_with(extension.as_str()))
    }

    /// Returns the command for a file, below the root of its project. `None` if the formatter does
    /// not apply to the project. Reads the reader.
    ///
    /// # Errors
    /// If the program that the settings name is not installed.
    pub fn run(
        &self,
        file: &Path,
        root: &Path,
        environment: &Environment,
    ) -> Result<Option<FormatterRun>, MissingFormatter> {
        let upward = || {
            file.ancestors()
                .skip(1)
                .take_while(|folder| folder.starts_with(root))
        };
        let applies = match self.condition {
            None | Some(RunCondition::Found) => true,
            Some(RunCondition::Dependency(package)) => {
                upward().any(|folder| depends(folder, package))
            }
            Some(RunCondition::Settings(names)) => {
                upward().any(|folder| names.iter().any(|name| folder.join(name).is_file()))
            }
            Some(RunCondition::Mentioned(files)) => {
                upward().any(|folder| files.iter().any(|file| mentions(folder, file)))
            }
        };
        if !applies {
            return Ok(None);
        }
        let Some((program, arguments)) = self.command.split_first() else {
            return Ok(None);
        };
        let project_bins = upward()
            .flat_map(|folder| [folder.join("node_modules/.bin"), folder.join("vendor/bin")]);
        let found = if program.contains('/') {
            Some(root.join(program)).filter(|file| base::executable::is_executable(file))
        } else if self.condition.is_some() {
            base::executable::find(program, project_bins.chain(environment.path()))
        } else {
            base::executable::find(program, environment.path())
        };
        let Some(found) = found else {
            if self.condition.is_some() {
                return Ok(None);
            }
            return Err(MissingFormatter {
                name: self.name.clone(),
                program: program.clone(),
            });
        };
        let filled = |word: &String| match word.as_str() {
            "$EDITION" => edition(upward()),
            word => word.replace("$FILE", &file.display().to_string()),
        };
        let folder = match self.condition {
            Some(RunCondition::Settings(names)) => {
                upward().find(|folder| names.iter().any(|name| folder.join(name).is_file()))
            }
            _ => None,
        };
        Ok(Some(FormatterRun {
            folder: folder.map(Path::to_path_buf),
            name: self.name.clone(),
            of_project: self.condition.is_some() && (self.loads_code || found.starts_with(root)),
            command: (found, arguments.iter().map(filled).collect()),
            environment: self.environment.clone(),
        }))
    }
}

/// Returns the formatters of a settings file's `formatter`, for tests.
///
/// # Errors
/// If the value is not such a setting.
#[cfg(any(test, feature = "testing"))]
pub fn from_json(written: Value) -> serde_json::Result<Vec<FormatterEntry>> {
    Ok(entries(Some(serde_json::from_value(written)?)).0)
}

/// Applies the settings to the known formatters. An entry without a command changes a known one.
///
/// The second list has the names of entries that are neither known nor have a command.
pub(crate) fn entries(written: Option<OnOrNamed<Formatter>>) -> (Vec<FormatterEntry>, Vec<String>) {
    let named = match written {
        None | Some(OnOrNamed::Switch(false)) => return (Vec::new(), Vec::new()),
        Some(OnOrNamed::Switch(true)) => Vec::new(),
        Some(OnOrNamed::Named(named)) => named.0,
    };
    let mut entries: Vec<Option<FormatterEntry>> = KNOWN_FORMATTERS
        .iter()
        .map(|known| Some(FormatterEntry::of(known)))
        .collect();
    let mut places: HashMap<String, usize> = HashMap::new();
    places.extend(
        KNOWN_FORMATTERS
            .iter()
            .enumerate()
            .map(|(at, known)| (known.name.to_owned(), at)),
    );
    let mut incomplete = Vec::new();
    for (name, written) in named {
        if written.disabled {
            // Both names are for the same formatter.
            const SAME: [&str; 2] = ["ruff", "uv"];
            let also: &[&str] = if SAME.contains(&name.as_str()) {
                &SAME
            } else {
                &[]
            };
            for name in also.iter().copied().chain([name.as_str()]) {
                if let Some(entry) = places.remove(name).and_then(|at| entries.get_mut(at)) {
                    *entry = None;
                }
            }
            continue;
        }
        let known = places
            .get(&name)
            .and_then(|at| entries.get_mut(*at))
            .and_then(Option::as_mut);
        let entry = match known {
            Some(entry) => entry,
            None if written.command.is_empty() || written.extensions.is_empty() => {
                incomplete.push(name);
                continue;
            }
            None => {
                places.insert(name.clone(), entries.len());
                let entry = FormatterEntry {
                    name,
                    command: Vec::new(),
                    extensions: Vec::new(),
                    environment: Vec::new(),
                    condition: None,
                    loads_code: false,
                };
                entries.push_mut(None).insert(entry)
            }
        };
        if !written.command.is_empty() {
            entry.command = written.command;
            entry.condition = None;
            entry.loads_code = false;
        }
        if !written.extensions.is_empty() {
            let dotted = |text: String| {
                if text.starts_with('.') {
                    text
                } else {
                    format!(".{text}")
                }
            };
            entry.extensions = written.extensions.into_iter().map(dotted).collect();
        }
        entry.environment.extend(written.environment.0);
    }
    (entries.into_iter().flatten().collect(), incomplete)
}

/// Returns the formatters that take their program, or code that it loads, from the project of a
/// directory, with their commands for a file there.
pub(crate) fn of_project(
    entries: &[FormatterEntry],
    cwd: &Path,
    root: &Path,
    environment: &Environment,
) -> Vec<(String, Vec<String>)> {
    let run = |entry: &FormatterEntry| {
        entry
            .run(&cwd.join("$FILE"), root, environment)
            .ok()
            .flatten()
    };
    let project_runs = entries.iter().filter_map(run).filter(|run| run.of_project);
    let command_line = |run: FormatterRun| {
        let (program, arguments) = run.command;
        let program = program
            .strip_prefix(root)
            .unwrap_or(&program)
            .display()
            .to_string();
        let arguments = arguments.into_iter().map(|word| {
            if word.ends_with("$FILE") {
                "$FILE".into()
            } else {
                word
            }
        });
        (
            run.name,
            std::iter::once(program).chain(arguments).collect(),
        )
    };
    project_runs.map(command_line).collect()
}

fn depends(folder: &Path, package: &str) -> bool {
    let (file, keys) = if package.contains('/') {
        ("composer.json", ["require", "require-dev"])
    } else {
        ("package.json", ["dependencies", "devDependencies"])
    };
    let Some(manifest) =
        text(&folder.join(file)).and_then(|text| serde_json::from_str::<Value>(&text).ok())
    else {
        return false;
    };
    keys.iter().any(|key| {
        manifest
            .get(key)
            .is_some_and(|all| all.get(package).is_some())
    })
}

fn mentions(folder: &Path, (file, word): &(&str, &str)) -> bool {
    let file = folder.join(file);
    if word.is_empty() {
        file.is_file()
    } else {
        text(&file).is_some_and(|text| text.contains(word))
    }
}

/// Returns the edition of the nearest `Cargo.toml` that has one: rustfmt does not look there
/// itself.
fn edition<'p>(upward: impl Iterator<Item = &'p Path>) -> String {
    let edition_in = |folder: &Path| {
        let manifest = text(&folder.join("Cargo.toml"))?;
        let line = manifest
            .lines()
            .find_map(|line| line.trim().strip_prefix("edition"))?;
        let year = line
            .trim_start()
            .strip_prefix('=')?
            .split_once('"')?
            .1
            .split_once('"')?
            .0;
        year.bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| year.to_owned())
    };
    upward
        .into_iter()
        .find_map(edition_in)
        .unwrap_or_else(|| "2021".to_owned())
}

/// Returns the text of a regular file of at most 1 MiB.
fn text(file: &Path) -> Option<String> {
    base::file::read_small_text(file, 1 << 20).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    fn named(written: Value) -> Vec<FormatterEntry> {
        let (entries, incomplete) = entries(Some(serde_json::from_value(written).unwrap()));
        assert!(incomplete.is_empty(), "{incomplete:?}");
        entries
    }

    #[test]
    fn settings_change_known_formatters() {
        let names = |entries: &[FormatterEntry]| {
            entries
                .iter()
                .map(|entry| entry.name.clone())
                .collect::<Vec<_>>()
        };
        let all = names(&named(json!(true)));
        assert_eq!(all.len(), KNOWN_FORMATTERS.len());
        assert_eq!(names(&named(json!({}))), all);
        assert_eq!(entries(None).0, []);
        assert_eq!(entries(Some(OnOrNamed::Switch(false))).0, []);
        let changed = named(json!({
            "ruff": {"disabled": true},
            "gofmt": {"extensions": ["go", ".tmpl"]},
            "shfmt": {"command": ["my-shfmt", "$FILE"], "environment": {"A": "1"}},
            "own": {"command": ["own", "$FILE"], "extensions": [".own"]},
        }));
        assert_eq!(
            changed.len(),
            KNOWN_FORMATTERS.len() - 2 + 1,
            "ruff and uv are one"
        );
        let find = |name: &str| changed.iter().find(|entry| entry.name == name).unwrap();
        assert_eq!(find("gofmt").extensions, [".go", ".tmpl"]);
        assert_eq!(
            (find("shfmt").condition, find("gofmt").condition),
            (None, Some(RunCondition::Found))
        );
        assert_eq!(
            find("shfmt").environment,
            [("A".to_owned(), "1".to_owned())]
        );
        assert!(
            find("own").is_for(Path::new("/x/a.own")) && !find("own").is_for(Path::new("/x/.own"))
        );
        let (_, incomplete) = entries(Some(
            serde_json::from_value(json!({"own": {"command": ["x"]}})).unwrap(),
        ));
        assert_eq!(incomplete, ["own"]);
    }

    #[test]
    fn known_formatter_runs_if_it_applies_to_project() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("project");
        let bin = dir.path().join("bin");
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        let path = BTreeMap::from([("PATH".to_owned(), bin.display().to_string())]);
        let environment = Environment::from_vars(path);
        let all = named(json!(true));
        let which = |file: &str| {
            let file = root.join(file);
            let runs = all.iter().filter(|entry| entry.is_for(&file));
            let runs = runs.filter_map(|entry| entry.run(&file, &root, &environment).unwrap());
            let line = |run: FormatterRun| {
                let program = run
                    .command
                    .0
                    .strip_prefix(dir.path())
                    .unwrap()
                    .display()
                    .to_string();
                let whose = if run.of_project { "project" } else { "user" };
                (
                    whose,
                    format!(
                        "{program} {}",
                        run.command
                            .1
                            .join(" ")
                            .replace(&root.display().to_string(), "")
                    ),
                )
            };
            runs.map(line).collect::<Vec<_>>()
        };
        assert_eq!(which("a.rs"), []);
        write("bin/rustfmt", "");
        write("bin/prettier", "");
        write("bin/ruff", "");
        assert_eq!(
            which("a.rs"),
            [("user", "bin/rustfmt --edition 2021 /a.rs".to_owned())]
        );
        write("project/Cargo.toml", "[package]\nedition = \"2024\"\n");
        write(
            "project/src/Cargo.toml",
            "[package]\nedition.workspace = true\n",
        );
        assert_eq!(
            which("src/a.rs"),
            [("user", "bin/rustfmt --edition 2024 /src/a.rs".to_owned())]
        );
        assert_eq!(which("a.ts"), []);
        write(
            "project/package.json",
            r#"{"devDependencies": {"prettier": "3"}}"#,
        );
        assert_eq!(
            which("a.ts"),
            [("project", "bin/prettier --write /a.ts".to_owned())],
            "it loads plug-ins"
        );
        write("project/node_modules/.bin/prettier", "");
        let own = (
            "project",
            "project/node_modules/.bin/prettier --write /web/a.ts".to_owned(),
        );
        assert_eq!(which("web/a.ts"), [own]);
        assert_eq!(which("a.py"), []);
        write("project/pyproject.toml", "[tool.ruff]\n");
        assert_eq!(
            which("a.py"),
            [("user", "bin/ruff format /a.py".to_owned())]
        );
        let of_project = of_project(&all, &root, &root, &environment);
        let line = "node_modules/.bin/prettier --write $FILE"
            .split(' ')
            .map(str::to_owned)
            .collect();
        assert_eq!(of_project, [("prettier".to_owned(), line)]);
        // A missing program of the user's own is an error.
        let own = named(json!({"x": {"command": ["nope", "$FILE"], "extensions": [".x"]}}));
        let missing = own
            .last()
            .unwrap()
            .run(&root.join("a.x"), &root, &environment)
            .unwrap_err();
        assert_eq!(missing.program, "nope");
    }
}
