//! The layers of settings and their order, lowest first:
//!
//! 1. the last fetched defaults of an organisation;
//! 2. the user's own files: `~/.config/opencode/{config.json,opencode.json,opencode.jsonc}`, then
//!    `~/.config/adjutant/adjutant.json(c)`;
//! 3. the files that `OPENCODE_CONFIG` and `ADJUTANT_CONFIG` name;
//! 4. `opencode.json(c)`, then `adjutant.json(c)`, from the project's root down to the session's
//!    directory;
//! 5. directories: the user's two, `~/.opencode`, `~/.adjutant`, then `.opencode` and `.adjutant`
//!    from the project's root down to the session's directory, then those that
//!    `OPENCODE_CONFIG_DIR` and `ADJUTANT_CONFIG_DIR` name; an inner one wins over an outer one;
//! 6. `OPENCODE_CONFIG_CONTENT`, then `ADJUTANT_CONFIG_CONTENT`; `ADJUTANT_STORE`, which is
//!    `store.url`;
//! 7. the administrator's: `/etc/opencode`, then `/etc/adjutant` (other systems: `administered`);
//! 8. `OPENCODE_PERMISSION`, then `ADJUTANT_PERMISSION`, which are merged over `permission`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::contribution::Contribution;
use super::declare::ConfigSchema;
use super::declare::effect::{self, KeyEffect};
use super::file::ConfigFile;
use super::node::{ConfigOrigin, Layer, MapEntry, Node, NodeValue, SourceLocation};
use super::problem::{Problem, ProblemCode};
use super::reader::ConfigReader;
use super::resolve::is_on;
use super::script::{self, ScriptEntry};
use super::settings::Directory;
use super::{claude, decode, examples, jsonc, legacy, markdown, rules, substitute};
use base::environment::Environment;
use permission::shell::variable_danger;

/// A settings text, parsed and checked.
#[derive(Debug, Clone)]
pub(crate) struct ParsedLayer {
    pub(crate) origin: Arc<ConfigOrigin>,
    pub(crate) node: Node,
}

pub(crate) struct LayersRead {
    /// Lowest first.
    pub(crate) layers: Vec<ParsedLayer>,
    /// The settings that plugins add, and the index of the layer that they come before.
    pub(crate) contributed: (usize, Vec<ParsedLayer>),
    pub(crate) directories: Vec<Directory>,
    /// Found in `tool/` and `plugin/` of configuration directories, or named in `plugin`; in load
    /// order.
    pub(crate) scripts: Vec<ScriptEntry>,
}

/// OpenCode variables that have no effect here: the reason, and the alternative.
const INEFFECTIVE_VARIABLES: [(&str, &str, &str); 2] = [
    (
        "OPENCODE_EXPERIMENTAL_BASH_DEFAULT_TIMEOUT_MS",
        "no effect: a command that names no timeout may take two minutes",
        "have your instructions say which commands take longer: the model can name a timeout",
    ),
    (
        "OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX",
        "no effect: an answer may have 32000 tokens, or what its model's limit says where that is less",
        "a lower one is provider.<name>.models.<name>.limit.output",
    ),
];

/// Names of settings files in a project and in a directory named by a variable: OpenCode's first.
const FILE_NAMES: [&str; 4] = [
    "opencode.json",
    "opencode.jsonc",
    "adjutant.json",
    "adjutant.jsonc",
];

/// Names of settings files in a directory of OpenCode's and of adjutant's.
const OPENCODE_FILE_NAMES: &[&str] = &["opencode.json", "opencode.jsonc"];
const ADJUTANT_FILE_NAMES: &[&str] = &["adjutant.json", "adjutant.jsonc"];

pub(crate) fn read(
    reader: &mut ConfigReader<'_>,
    cwd: &Path,
    contributions: &[Contribution],
) -> LayersRead {
    let environment = reader.environment;
    let project = !environment
        .setting("DISABLE_PROJECT_CONFIG")
        .is_some_and(is_on);
    let down = if project {
        directories_between(&reader.worktree.root, cwd)
    } else {
        Vec::new()
    };
    let mut layers = LayerReader {
        reader,
        parsed: Vec::new(),
        read: Vec::new(),
        directories: Vec::new(),
        scripts: Vec::new(),
    };
    layers.organisation(environment);
    layers.user(environment, cwd);
    for dir in &down {
        for name in FILE_NAMES {
            layers.file(&dir.join(name), Layer::Project, true);
        }
    }
    layers.all_directories(environment, &down, cwd);
    let below = layers.parsed.len();
    contributions
        .iter()
        .for_each(|contribution| layers.contributed(contribution));
    let contributed = (below, layers.parsed.split_off(below));

    for name in ["OPENCODE_CONFIG_CONTENT", "ADJUTANT_CONFIG_CONTENT"] {
        if let Some(text) = environment.var(name) {
            layers.text(text, &variable(name, Layer::Inline), Some(cwd));
        }
    }
    if let Some(url) = environment.var("ADJUTANT_STORE") {
        let text = serde_json::json!({ "store": { "url": url } }).to_string();
        layers.text(&text, &variable("ADJUTANT_STORE", Layer::Inline), Some(cwd));
    }
    let managed = environment
        .setting("TEST_MANAGED_CONFIG_DIR")
        .map(PathBuf::from);
    let managed = managed.map_or_else(
        || administered(std::env::consts::OS, environment.var("ProgramData")),
        |dir| vec![dir],
    );
    for dir in managed {
        for name in FILE_NAMES {
            layers.file(&dir.join(name), Layer::Managed, false);
        }
    }
    for name in ["OPENCODE_PERMISSION", "ADJUTANT_PERMISSION"] {
        if let Some(text) = environment.var(name) {
            layers.permission(text, &variable(name, Layer::Variable));
        }
    }
    layers.claude_hooks(&down);
    layers.report_ineffective_variables(environment);
    let LayerReader {
        reader,
        parsed,
        directories,
        mut scripts,
        ..
    } = layers;
    let directory_list: Vec<(PathBuf, bool)> = directories
        .iter()
        .map(|dir| (dir.path.clone(), dir.project))
        .collect();
    scripts.extend(
        parsed
            .iter()
            .flat_map(|layer| script::in_list(&layer.node, &directory_list, reader)),
    );
    LayersRead {
        layers: parsed,
        contributed,
        directories,
        scripts: script::without_duplicates(scripts),
    }
}

/// Returns the directories of an administrator's settings on a system, lowest first.
pub(crate) fn administered(system: &str, program_data: Option<&str>) -> Vec<PathBuf> {
    let parent = match system {
        "macos" => PathBuf::from("/Library/Application Support"),
        "windows" => PathBuf::from(program_data.unwrap_or("C:\\ProgramData")),
        _ => PathBuf::from("/etc"),
    };
    ["opencode", "adjutant"]
        .map(|name| parent.join(name))
        .into()
}

/// Returns the directories from `root` down to `cwd`, both included. A `cwd` outside `root` is
/// returned alone.
pub fn directories_between(root: &Path, cwd: &Path) -> Vec<PathBuf> {
    let real = std::fs::canonicalize(cwd).unwrap_or_else(|_| base::worktree::normal(cwd));
    if !real.starts_with(root) {
        return vec![real];
    }
    let mut down: Vec<PathBuf> = real
        .ancestors()
        .take_while(|dir| dir.starts_with(root))
        .map(Path::to_path_buf)
        .collect();
    down.reverse();
    down
}

fn absolute(path: &str, cwd: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => cwd.join(path),
    }
}

fn variable(name: &str, layer: Layer) -> Arc<ConfigOrigin> {
    Arc::new(ConfigOrigin {
        name: name.to_owned(),
        path: None,
        layer,
        project: false,
    })
}

struct LayerReader<'d, 'a> {
    reader: &'d mut ConfigReader<'a>,
    parsed: Vec<ParsedLayer>,
    /// The files read so far: a file that belongs to two layers counts in the lower one.
    read: Vec<PathBuf>,
    directories: Vec<Directory>,
    scripts: Vec<ScriptEntry>,
}

impl LayerReader<'_, '_> {
    /// Reads the last fetched defaults of organisations.
    fn organisation(&mut self, environment: &Environment) {
        for path in super::remote::login_files(environment) {
            // An absent file is recorded too, so that a later login is noticed as a change.
            let origin = self.reader.origin(&path, Layer::Remote, false);
            let Some(text) = self.reader.read(&origin) else {
                continue;
            };
            if !text.trim().is_empty()
                && let Err(e) = serde_json::from_str::<serde::de::IgnoredAny>(&text)
            {
                let number = |number| u32::try_from(number).unwrap_or(u32::MAX);
                let location = SourceLocation {
                    origin,
                    line: number(e.line()),
                    column: number(e.column().max(1)),
                };
                let text = "this is not valid JSON; the settings of the organisations that you are \
                            logged in to are not used";
                self.reader
                    .problems
                    .push(Problem::error(ProblemCode::Syntax, &location, "", text));
            }
        }
        let remotes = super::remote::organisations(environment);
        self.reader.tokens = remotes
            .iter()
            .filter_map(|remote| remote.token.clone())
            .collect();
        for remote in remotes {
            if !self.file(&remote.file, Layer::Remote, false) {
                let location = SourceLocation::whole_text(&self.reader.origin(
                    &remote.file,
                    Layer::Remote,
                    false,
                ));
                let text = format!(
                    "the defaults of {} have not been fetched yet, so what they deny is not known; they are fetched \
                     while a session is open",
                    remote.address
                );
                self.reader.problems.push(Problem::error(
                    ProblemCode::MissingFile,
                    &location,
                    "",
                    text,
                ));
            }
        }
    }

    /// Reads the user's own files, and those that variables name.
    fn user(&mut self, environment: &Environment, cwd: &Path) {
        let ours = &environment.dirs.config;
        let theirs = ours.with_file_name("opencode");
        for name in ["config.json", "opencode.json", "opencode.jsonc"] {
            self.file(&theirs.join(name), Layer::Global, false);
        }
        for name in ADJUTANT_FILE_NAMES {
            self.file(&ours.join(name), Layer::Global, false);
        }
        for name in ["OPENCODE_CONFIG", "ADJUTANT_CONFIG"] {
            let Some(path) = environment.var(name) else {
                continue;
            };
            let path = absolute(path, cwd, environment.home.as_deref());
            if !self.file(&path, Layer::Named, false) {
                let location = SourceLocation::whole_text(&variable(name, Layer::Named));
                let text = format!("there is no file {}", path.display());
                self.reader.problems.push(Problem::error(
                    ProblemCode::MissingFile,
                    &location,
                    "",
                    text,
                ));
            }
        }
    }

    /// Reads the configuration directories, the outermost first.
    fn all_directories(&mut self, environment: &Environment, down: &[PathBuf], cwd: &Path) {
        let ours = environment.dirs.config.clone();
        self.directory(ours.with_file_name("opencode"), &[], false, Layer::Global);
        self.directory(ours, &[], false, Layer::Global);
        let home = environment.home.iter().map(|home| (home, false));
        for (dir, project) in home.chain(down.iter().map(|dir| (dir, true))) {
            self.directory(
                dir.join(".opencode"),
                OPENCODE_FILE_NAMES,
                project,
                Layer::Directory,
            );
            self.directory(
                dir.join(".adjutant"),
                ADJUTANT_FILE_NAMES,
                project,
                Layer::Directory,
            );
        }
        for name in ["OPENCODE_CONFIG_DIR", "ADJUTANT_CONFIG_DIR"] {
            if let Some(path) = environment.var(name) {
                let path = absolute(path, cwd, environment.home.as_deref());
                if !path.is_dir() {
                    let location = SourceLocation::whole_text(&variable(name, Layer::Directory));
                    let text = format!("there is no directory {}", path.display());
                    self.reader.problems.push(Problem::error(
                        ProblemCode::MissingFile,
                        &location,
                        "",
                        text,
                    ));
                }
                self.directory(path, &FILE_NAMES, false, Layer::Directory);
            }
        }
    }

    /// Reads the files of these names in a directory, and its folders, once.
    fn directory(&mut self, path: PathBuf, names: &[&str], project: bool, layer: Layer) {
        if self
            .directories
            .iter()
            .any(|directory| directory.path == path)
        {
            return;
        }
        for name in names {
            self.file(&path.join(name), layer, project);
        }
        self.folders(&path, layer, project);
        self.directories.push(Directory { path, project });
    }

    /// Reads a file. Returns whether it exists, readable or not.
    fn file(&mut self, path: &Path, layer: Layer, project: bool) -> bool {
        if self.read.iter().any(|read| read == path) {
            return true;
        }
        self.read.push(path.to_path_buf());
        let origin = self.reader.origin(path, layer, project);
        let before = self.reader.problems.len();
        match self.reader.read(&origin) {
            Some(text) => {
                self.text(&text, &origin, path.parent());
                true
            }
            None => self.reader.problems.len() > before,
        }
    }

    fn text(&mut self, text: &str, origin: &Arc<ConfigOrigin>, dir: Option<&Path>) {
        if let Some(node) = substitute::parse(text, origin, dir, self.reader) {
            self.node(node, origin);
        }
    }

    /// Reads the settings that a plugin adds. Variables and files are not substituted in them.
    fn contributed(&mut self, contribution: &Contribution) {
        let origin = Arc::new(ConfigOrigin {
            name: contribution.plugin.clone(),
            path: None,
            layer: Layer::Directory,
            project: contribution.project,
        });
        match jsonc::parse(&contribution.settings, &origin, &mut self.reader.problems) {
            Ok(node) => self.node(node, &origin),
            Err(problem) => self.reader.problems.push(problem),
        }
    }

    fn node(&mut self, mut node: Node, origin: &Arc<ConfigOrigin>) {
        if !matches!(node.value, NodeValue::Map(_)) {
            let found = node.kind();
            self.reader.problems.push(Problem::error(
                ProblemCode::WrongValue,
                &node.at,
                "",
                format!("expected an object, found {found}"),
            ));
            return;
        }
        legacy::rewrite_later_format(&mut node, &mut self.reader.problems);
        ConfigSchema::settings().check(&mut node, "", &mut self.reader.problems);
        legacy::rewrite(&mut node, &mut self.reader.problems);
        rules::report_unreachable_in(&node, &mut self.reader.problems);
        examples::in_file(&mut node, self.reader);
        drop_foreign_keys(&mut node, origin, &mut self.reader.problems);
        if origin.project {
            drop_variables(&mut node, &mut self.reader.problems);
        }
        self.push(origin.clone(), node);
    }

    /// Adds a checked layer. It is decoded alone, so that values which its check has missed stay
    /// out of the joined tree, and trust is requested only for values in use.
    fn push(&mut self, origin: Arc<ConfigOrigin>, mut node: Node) {
        decode::drop_unfit::<ConfigFile>(&mut node, &mut self.reader.problems);
        self.parsed.push(ParsedLayer { origin, node });
    }

    /// Reads the hooks of Claude Code's files if the settings request them. Those of the home
    /// directory are read only if the user's own settings request them.
    fn claude_hooks(&mut self, down: &[PathBuf]) {
        let is_requested = |own_only: bool| {
            let mut layers = self
                .parsed
                .iter()
                .filter(|layer| !(own_only && layer.origin.project));
            layers.any(|layer| {
                layer.node.at(&["hooks", "claude"]).and_then(Node::as_bool) == Some(true)
            })
        };
        if !is_requested(false) {
            return;
        }
        let home = if is_requested(true) {
            self.reader.environment.home.clone()
        } else {
            None
        };
        let home = home
            .iter()
            .map(|home| (home.as_path(), Layer::Global, false));
        let places: Vec<_> = home
            .chain(down.iter().map(|dir| (dir.as_path(), Layer::Project, true)))
            .collect();
        for (dir, layer, project) in places {
            for path in claude::files(dir) {
                if self.read.contains(&path) {
                    continue;
                }
                self.read.push(path.clone());
                let origin = self.reader.origin(&path, layer, project);
                let Some(text) = self.reader.read(&origin) else {
                    continue;
                };
                match jsonc::parse(&text, &origin, &mut self.reader.problems) {
                    Ok(node) => {
                        let mut node = claude::hooks(&node, &origin, &mut self.reader.problems);
                        ConfigSchema::settings().check(&mut node, "", &mut self.reader.problems);
                        self.push(origin, node);
                    }
                    Err(problem) => self.reader.problems.push(problem),
                }
            }
        }
    }

    /// Reports variables that have no effect here.
    fn report_ineffective_variables(&mut self, environment: &Environment) {
        for (name, why, hint) in INEFFECTIVE_VARIABLES {
            if environment.var(name).is_none() {
                continue;
            }
            let location = SourceLocation::whole_text(&variable(name, Layer::Variable));
            self.reader
                .problems
                .push(Problem::note(ProblemCode::NoEffect, &location, "", why).hint(hint));
        }
    }

    /// Reads a variable that holds only the value of `permission`.
    fn permission(&mut self, text: &str, origin: &Arc<ConfigOrigin>) {
        let Some(permission) = substitute::parse(text, origin, None, self.reader) else {
            return;
        };
        let at = SourceLocation::whole_text(origin);
        let entry = MapEntry {
            key: "permission".into(),
            at: at.clone(),
            node: permission,
        };
        let mut node = Node {
            value: NodeValue::Map(vec![entry]),
            at,
        };
        ConfigSchema::settings().check(&mut node, "", &mut self.reader.problems);
        legacy::rewrite(&mut node, &mut self.reader.problems);
        examples::in_file(&mut node, self.reader);
        self.push(origin.clone(), node);
    }

    /// Reads the Markdown files of a directory: commands, then agents, then modes.
    fn folders(&mut self, dir: &Path, layer: Layer, project: bool) {
        match self.reader.record_metadata(dir) {
            Ok(Some(meta)) if meta.is_dir() => {}
            Ok(_) => return,
            Err(e) => {
                let location = SourceLocation::whole_text(&self.reader.origin(dir, layer, project));
                let text = e.to_string();
                let text = text
                    .split(" (os error")
                    .next()
                    .unwrap_or_default()
                    .to_lowercase();
                self.reader.problems.push(Problem::error(
                    ProblemCode::Unreadable,
                    &location,
                    "",
                    format!("this directory cannot be read: {text}"),
                ));
                return;
            }
        }
        self.scripts
            .extend(script::in_directory(dir, layer, project, self.reader));
        for (key, folders) in [
            ("command", ["command", "commands"]),
            ("agent", ["agent", "agents"]),
            ("agent", ["mode", "modes"]),
        ] {
            let mut names: HashMap<String, Arc<ConfigOrigin>> = HashMap::new();
            for folder in folders {
                let files = self
                    .reader
                    .markdown(&dir.join(folder), true, layer, project);
                let old = folder.starts_with("mode");
                for (name, origin) in files {
                    if old {
                        let text = "the folder \"mode\" is an old place for agents; it still works";
                        let problem =
                            Problem::deprecated(&SourceLocation::whole_text(&origin), "", text);
                        self.reader.problems.push(
                            problem.hint("move the file to \"agents\" and write \"mode: primary\""),
                        );
                    }
                    let read = if key == "command" {
                        markdown::command(&origin, self.reader)
                    } else {
                        markdown::agent(&origin, old, self.reader)
                    };
                    let Some((own, node)) = read else { continue };
                    let name = own.unwrap_or(name);
                    if let Some(first) = names.get(&name) {
                        let text = format!(
                            "there are two {key}s named \"{name}\" here; {} is the other",
                            first.name
                        );
                        let problem = Problem::warning(
                            ProblemCode::Duplicate,
                            &SourceLocation::whole_text(&origin),
                            format!("{key}.{name}"),
                            text,
                        );
                        self.reader.problems.push(
                            problem.hint(
                                "rename one of the two; until then this one wins, key by key",
                            ),
                        );
                    }
                    names.entry(name.clone()).or_insert_with(|| origin.clone());
                    let at = node.at.clone();
                    let inner = Node {
                        value: NodeValue::Map(vec![MapEntry {
                            key: name,
                            at: at.clone(),
                            node,
                        }]),
                        at: at.clone(),
                    };
                    let node = Node {
                        value: NodeValue::Map(vec![MapEntry {
                            key: key.into(),
                            at: at.clone(),
                            node: inner,
                        }]),
                        at,
                    };
                    self.push(origin, node);
                }
            }
        }
    }
}

/// Removes keys that only the user may set from the settings of others: what `x-trust` of their
/// declarations states.
fn drop_foreign_keys(node: &mut Node, origin: &ConfigOrigin, problems: &mut Vec<Problem>) {
    if !origin.project && origin.layer != Layer::Remote {
        return;
    }
    for (path, effect) in ConfigSchema::settings().effects(node) {
        let reason = match effect {
            KeyEffect::MachineOnly(reason) => reason,
            KeyEffect::UserOnly(reason) if origin.project => reason,
            _ => continue,
        };
        if let Some(entry) = effect::remove(node, &path) {
            let text = format!("ignored: {reason}");
            problems.push(Problem::warning(
                ProblemCode::NotForProjects,
                &entry.at,
                path.join("."),
                text,
            ));
        }
    }
}

/// Removes variables that make programs run other code from the programs of a project's settings:
/// consent to a program does not cover code that a variable injects.
fn drop_variables(node: &mut Node, problems: &mut Vec<Problem>) {
    let programs = [
        ("mcp", "environment"),
        ("formatter", "environment"),
        ("hook", "environment"),
        ("lsp", "env"),
    ];
    for (kind, variables) in programs {
        for entry in node
            .get_mut(kind)
            .and_then(Node::entries_mut)
            .into_iter()
            .flatten()
        {
            let Some(set) = entry.node.get_mut(variables).and_then(Node::entries_mut) else {
                continue;
            };
            set.retain(|variable| {
                let Some(danger) = variable_danger(&variable.key) else {
                    return true;
                };
                let key = format!("{kind}.{}.{variables}.{}", entry.key, variable.key);
                let text = format!(
                    "a project cannot set {}: it {danger}; it is left out",
                    variable.key
                );
                problems.push(Problem::warning(
                    ProblemCode::NotForProjects,
                    &variable.at,
                    key,
                    text,
                ));
                false
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn administrator_directories_depend_on_system() {
        let table = [
            ("linux", None, "/etc"),
            ("freebsd", Some("ignored"), "/etc"),
            ("macos", None, "/Library/Application Support"),
            ("windows", Some("D:\\Data"), "D:\\Data"),
            ("windows", None, "C:\\ProgramData"),
        ];
        for (system, data, parent) in table {
            let wanted = ["opencode", "adjutant"].map(|name| Path::new(parent).join(name));
            assert_eq!(administered(system, data), wanted, "{system}");
        }
    }
}
