//! Instruction files: `AGENTS.md` and its alternatives, the user's own, the project's, those that
//! the settings name, and those of a directory in which a tool works. This module only reads; it
//! lists addresses for another module to fetch.
//!
//! The contents go to the model. Therefore a project's files pass the same gate as reading them
//! would, whatever names them; links out of the project are not followed, and invisible characters
//! are removed and counted.

use std::collections::HashSet;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

use base::environment::Environment;
use base::text::visible;
use base::worktree::{Worktree, normal};
use config::node::{ConfigOrigin, Layer, SourceLocation};
use config::settings::{InstructionEntry, Settings};
use config::{ConfigFingerprint, Problem, ProblemCode, ProblemSeverity};
use permission::Action;
use permission::search_filter::SearchFilter;

/// The file names, in order of precedence: only the first name that exists in any directory is
/// used.
pub const FILE_NAMES: [&str; 3] = ["AGENTS.md", "CLAUDE.md", "CONTEXT.md"];
/// The maximum size of a file that is read whole, in bytes. A longer file is cut, with a note.
pub const MAX_FILE_BYTES: usize = 256 << 10;
/// The maximum number of files of one glob.
const MAX_GLOB_FILES: usize = 200;

/// A text for the system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstructionText {
    /// The path or address, for the model and to identify the entry.
    pub source: String,
    /// The path, if it is a file.
    pub path: Option<PathBuf>,
    pub text: String,
}

impl InstructionText {
    /// Returns the text as the model sees it.
    pub fn block(&self) -> String {
        format!("Instructions from: {}\n{}", self.source, self.text)
    }
}

/// Instructions, with their problems.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Instructions {
    /// In order: the user's, the project's (nearest first), those that the settings name.
    pub entries: Vec<InstructionText>,
    /// The addresses in the settings. Another module fetches them; this one reads the last fetched
    /// text.
    pub addresses: Vec<String>,
    /// The addresses that were never fetched.
    pub missing: Vec<String>,
    /// The files that were not read, with the reason, and removed characters.
    pub problems: Vec<Problem>,
    /// The state of every file that was examined, to detect changes.
    pub fingerprint: ConfigFingerprint,
}

/// Reads the instructions of a directory; of the project's files, only those that `search_filter`
/// shows. Blocks on file access.
pub fn load(
    settings: &Settings,
    environment: &Environment,
    worktree: &Worktree,
    cwd: &Path,
    search_filter: &SearchFilter,
) -> Instructions {
    let mut reader = InstructionReader {
        environment,
        worktree,
        search_filter,
        found: Instructions::default(),
        read: HashSet::new(),
    };
    let uses_claude = uses_claude_files(environment);
    let uses_project = !is_on(environment, "DISABLE_PROJECT_CONFIG");

    // The user's own: the first existing file.
    let mut user_paths: Vec<PathBuf> = Vec::new();
    for name in ["ADJUTANT_CONFIG_DIR", "OPENCODE_CONFIG_DIR"] {
        user_paths.extend(
            environment
                .var(name)
                .map(|dir| cwd.join(dir).join("AGENTS.md")),
        );
    }
    if user_paths.is_empty() {
        user_paths.push(environment.dirs.config.join("AGENTS.md"));
        user_paths.push(
            environment
                .dirs
                .config
                .with_file_name("opencode")
                .join("AGENTS.md"),
        );
    }
    if uses_claude && let Some(home) = &environment.home {
        user_paths.push(home.join(".claude").join("CLAUDE.md"));
    }
    for path in user_paths {
        if reader.file(&path, FileOwner::Users) {
            break;
        }
    }

    // The project's, in each of its roots.
    if uses_project {
        for start in std::iter::once(cwd).chain(worktree.extra.iter().map(PathBuf::as_path)) {
            let up = upwards(start, worktree);
            for name in FILE_NAMES
                .into_iter()
                .filter(|name| uses_claude || *name != "CLAUDE.md")
            {
                let mut any = false;
                for dir in &up {
                    any |= reader.file(&dir.join(name), FileOwner::Inside);
                }
                if any {
                    break;
                }
            }
        }
    }

    for instruction in &settings.instructions {
        reader.read_entry(instruction, cwd, uses_project);
    }
    for address in reader.found.addresses.clone() {
        reader.page(address);
    }
    reader.found
}

/// Returns the path of the cached page of an address.
pub fn cached_page_path(environment: &Environment, address: &str) -> PathBuf {
    let digest = ring::digest::digest(&ring::digest::SHA256, address.as_bytes());
    let name = base::text::hex(&digest.as_ref()[..16]);
    environment
        .dirs
        .cache
        .join("instructions")
        .join(format!("{name}.md"))
}

/// Returns the instruction files that apply in a directory: one for each directory from it up to,
/// but without, its root, nearest first. `known` tells whether a file is not wanted, for instance
/// because the model has it already.
pub fn instructions_in(
    dir: &Path,
    cwd: &Path,
    environment: &Environment,
    worktree: &Worktree,
    search_filter: &SearchFilter,
    known: &dyn Fn(&Path) -> bool,
) -> Instructions {
    let mut reader = InstructionReader {
        environment,
        worktree,
        search_filter,
        found: Instructions::default(),
        read: HashSet::new(),
    };
    let uses_claude = uses_claude_files(environment);
    let dir = normal(dir);
    let roots = std::iter::once(cwd).chain(worktree.extra.iter().map(PathBuf::as_path));
    let Some(root) = roots
        .filter(|root| dir.starts_with(root))
        .max_by_key(|root| root.components().count())
    else {
        return reader.found;
    };
    for dir in dir
        .ancestors()
        .take_while(|dir| *dir != root && dir.starts_with(root))
    {
        for name in FILE_NAMES
            .into_iter()
            .filter(|name| uses_claude || *name != "CLAUDE.md")
        {
            let candidate = dir.join(name);
            if !candidate.is_file() {
                continue;
            }
            if !known(&candidate) {
                reader.file(&candidate, FileOwner::Inside);
            }
            break;
        }
    }
    reader.found
}

/// Reads an instruction file of the project again, with the checks of the first time: it may have
/// become a link, or a rule may deny it now. Blocks on file access.
pub fn reread(
    path: &Path,
    environment: &Environment,
    worktree: &Worktree,
    search_filter: &SearchFilter,
) -> Option<InstructionText> {
    let mut reader = InstructionReader {
        environment,
        worktree,
        search_filter,
        found: Instructions::default(),
        read: HashSet::new(),
    };
    reader.file(path, FileOwner::Inside);
    reader.found.entries.pop()
}

/// Returns whether a file has the name of an instruction file.
pub fn has_instruction_name(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| FILE_NAMES.iter().any(|known| name == *known))
}

fn uses_claude_files(environment: &Environment) -> bool {
    !is_on(environment, "DISABLE_CLAUDE_CODE") && !is_on(environment, "DISABLE_CLAUDE_CODE_PROMPT")
}

fn is_on(environment: &Environment, name: &str) -> bool {
    environment
        .setting(name)
        .is_some_and(|value| !matches!(value, "0" | "false"))
}

/// Returns the directories from `start` up to the project's root, nearest first. A directory
/// outside the project is returned alone.
fn upwards(start: &Path, worktree: &Worktree) -> Vec<PathBuf> {
    let start = std::fs::canonicalize(start).unwrap_or_else(|_| normal(start));
    if !start.starts_with(&worktree.root) {
        return vec![start];
    }
    start
        .ancestors()
        .take_while(|dir| dir.starts_with(&worktree.root))
        .map(Path::to_path_buf)
        .collect()
}

/// The owner of a file, which decides the checks for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileOwner {
    /// The user: no check.
    Users,
    /// Named by the project, outside of it: checked by the search filter.
    Projects,
    /// In the project, whatever names it: checked by the search filter, and links out of the
    /// project are not followed.
    Inside,
}

struct InstructionReader<'a> {
    environment: &'a Environment,
    worktree: &'a Worktree,
    search_filter: &'a SearchFilter,
    found: Instructions,
    /// The paths of the entries.
    read: HashSet<PathBuf>,
}

impl InstructionReader<'_> {
    /// Reads a file if it exists. Returns whether it counts as found: a file that is refused does
    /// not.
    fn file(&mut self, path: &Path, owner: FileOwner) -> bool {
        let meta: Metadata = match self.found.fingerprint.record_metadata(path) {
            Ok(Some(meta)) => meta,
            Ok(None) => return false,
            Err(e) => {
                let text = format!("not read: {}", config::reader::plain(&e));
                self.problem(ProblemCode::Unreadable, path, text);
                return false;
            }
        };
        if !meta.is_file() {
            return false;
        }
        let resolved = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if owner == FileOwner::Inside && !self.worktree.contains(&resolved) {
            let text = format!(
                "not read: this link leads out of the project, to {}",
                resolved.display()
            );
            self.problem(ProblemCode::Link, path, text);
            return false;
        }
        if owner != FileOwner::Users
            && let Some(why) = self.refusal(path, &resolved)
        {
            self.problem(ProblemCode::NotReadable, path, format!("not read: {why}"));
            return false;
        }
        if self.read.contains(path) || self.read.contains(&resolved) {
            return true;
        }
        match read_start(path) {
            Ok((bytes, whole)) => {
                self.add(
                    path.display().to_string(),
                    Some(path.to_path_buf()),
                    &bytes,
                    whole,
                );
                true
            }
            Err(e) => {
                let text = format!("not read: {}", config::reader::plain(&e));
                self.problem(ProblemCode::Unreadable, path, text);
                false
            }
        }
    }

    /// Reports a problem of an instruction file as a whole.
    fn problem(&mut self, code: ProblemCode, path: &Path, text: String) {
        let name = if path.is_absolute() {
            config::reader::shown(path, self.worktree, self.environment)
        } else {
            path.display().to_string()
        };
        let project = path.starts_with(&self.worktree.root);
        let origin = ConfigOrigin {
            name,
            path: Some(path.to_path_buf()),
            layer: Layer::Project,
            project,
        };
        let location = SourceLocation::whole_text(&std::sync::Arc::new(origin));
        self.found
            .problems
            .push(Problem::warning(code, &location, "", text));
    }

    /// Returns the reason why the model may not see a file, by its path or the target of its link.
    /// No question is asked.
    fn refusal(&self, path: &Path, resolved: &Path) -> Option<String> {
        let action = [path, resolved]
            .map(|path| self.search_filter.judge(path))
            .into_iter()
            .max()?;
        let name = if path == resolved {
            "it".to_owned()
        } else {
            self.search_filter.name(resolved)
        };
        match action {
            Action::Allow => None,
            Action::Ask => Some(format!("reading {name} needs permission")),
            Action::Deny => Some(format!("reading {name} is not allowed")),
        }
    }

    /// Reads the last fetched text of an address.
    fn page(&mut self, address: String) {
        let path = cached_page_path(self.environment, &address);
        let exists = self
            .found
            .fingerprint
            .record_metadata(&path)
            .ok()
            .flatten()
            .is_some();
        let start = if exists { read_start(&path).ok() } else { None };
        match start {
            Some((bytes, whole)) => self.add(address, None, &bytes, whole),
            None => self.found.missing.push(address),
        }
    }

    /// Adds a text without its invisible characters.
    fn add(&mut self, source: String, path: Option<PathBuf>, bytes: &[u8], whole: bool) {
        let text = String::from_utf8_lossy(bytes);
        let (mut text, removed) = visible(text.trim());
        if removed > 0 {
            let text = format!(
                "{} taken out",
                base::text::count(removed, "invisible character")
            );
            self.problem(
                ProblemCode::HiddenCharacters,
                path.as_deref().unwrap_or(Path::new(&source)),
                text,
            );
        }
        if !whole {
            text.push_str("\n\n(The rest of this file is left out: it is too long.)");
            let most = MAX_FILE_BYTES >> 10;
            let text = format!("this file is too long: only its first {most} KiB are used");
            self.problem(
                ProblemCode::TooMuch,
                path.as_deref().unwrap_or(Path::new(&source)),
                text,
            );
        }
        if !text.is_empty() {
            self.read.extend(path.clone());
            self.found
                .entries
                .push(InstructionText { source, path, text });
        }
    }

    /// Reads the files of an entry of `instructions`.
    fn read_entry(&mut self, instruction: &InstructionEntry, cwd: &Path, project: bool) {
        let text = instruction.text.as_str();
        if text.starts_with("http://") || text.starts_with("https://") {
            if !self.found.addresses.iter().any(|address| address == text) {
                self.found.addresses.push(text.to_owned());
            }
            return;
        }
        let home = self.environment.home.as_deref();
        let (dirs, pattern, is_searched) = match (text.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => (vec![home.to_path_buf()], rest, false),
            _ if text.starts_with('/') => (
                vec![PathBuf::from("/")],
                text.trim_start_matches('/'),
                false,
            ),
            _ if !project => (vec![self.environment.dirs.config.clone()], text, false),
            _ => (upwards(cwd, self.worktree), text, true),
        };
        let mut any = false;
        let problems_before = self.found.problems.len();
        for dir in dirs {
            for path in self.matching(&dir, pattern, &instruction.location) {
                // A file in the project belongs to the project even if the user's settings name it,
                // because those apply to every project and a link there may lead anywhere. A path
                // that is written as outside the project is the user's, or was part of the question
                // when the project was trusted.
                let owner = if is_searched && self.worktree.contains(&path) {
                    FileOwner::Inside
                } else if instruction.project {
                    FileOwner::Projects
                } else {
                    FileOwner::Users
                };
                any |= self.file(&path, owner);
            }
        }
        if !any && self.found.problems.len() == problems_before {
            // A relative path of the user's settings is for the projects that have such a file.
            let severity = if is_searched && !instruction.project {
                ProblemSeverity::Note
            } else {
                ProblemSeverity::Warning
            };
            let text = format!("there is no file \"{text}\"");
            let problem = Problem::new(
                severity,
                ProblemCode::MissingFile,
                &instruction.location,
                "instructions",
                text,
            );
            self.found.problems.push(problem);
        }
    }

    /// Returns the files below a directory that match a pattern, sorted. A pattern without
    /// wildcards is a path.
    fn matching(&mut self, dir: &Path, pattern: &str, location: &SourceLocation) -> Vec<PathBuf> {
        let is_wild = |part: &str| part.contains(['*', '?', '[', '{']);
        if !is_wild(pattern) {
            let path = normal(&dir.join(pattern));
            return self
                .found
                .fingerprint
                .record_metadata(&path)
                .ok()
                .flatten()
                .map(|_| path)
                .into_iter()
                .collect();
        }
        // Walk only below the part before the first wildcard.
        let fixed: PathBuf = pattern
            .split('/')
            .take_while(|part| !is_wild(part))
            .collect();
        let start = normal(&dir.join(&fixed));
        let rest: Vec<&str> = pattern
            .split('/')
            .skip_while(|part| !is_wild(part))
            .collect();
        let depth = if rest.contains(&"**") { 12 } else { rest.len() };
        let Ok(glob) = globset::GlobBuilder::new(&rest.join("/"))
            .literal_separator(true)
            .build()
        else {
            let text = format!("\"{pattern}\" is not a pattern");
            self.found.problems.push(Problem::warning(
                ProblemCode::WrongValue,
                location,
                "instructions",
                text,
            ));
            return Vec::new();
        };
        let glob = glob.compile_matcher();
        let mut found = Vec::new();
        self.walk(&start, &start, depth, &glob, &mut found);
        found.sort();
        found
    }

    fn walk(
        &mut self,
        root: &Path,
        dir: &Path,
        deeper: usize,
        glob: &globset::GlobMatcher,
        found: &mut Vec<PathBuf>,
    ) {
        if !self
            .found
            .fingerprint
            .record_metadata(dir)
            .ok()
            .flatten()
            .is_some_and(|meta| meta.is_dir())
        {
            return;
        }
        let Ok(list) = std::fs::read_dir(dir) else {
            return;
        };
        for entry in list.flatten() {
            if found.len() >= MAX_GLOB_FILES {
                return;
            }
            let path = entry.path();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() {
                let skip = matches!(
                    entry.file_name().to_str(),
                    Some(".git" | "node_modules" | "target")
                );
                if deeper > 1 && !skip {
                    self.walk(root, &path, deeper - 1, glob, found);
                }
            } else if path
                .strip_prefix(root)
                .is_ok_and(|rest| glob.is_match(rest))
            {
                found.push(path);
            }
        }
    }
}

/// Reads the start of a file. Returns whether that is the whole file.
fn read_start(path: &Path) -> std::io::Result<(Vec<u8>, bool)> {
    use std::io::Read;
    let mut bytes = Vec::new();
    base::file::open_regular(path)?
        .take(MAX_FILE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    let whole = bytes.len() <= MAX_FILE_BYTES;
    bytes.truncate(MAX_FILE_BYTES);
    Ok((bytes, whole))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use permission::{Policy, Rule, Rules};

    struct InstructionFixture {
        dir: tempfile::TempDir,
        vars: BTreeMap<String, String>,
    }

    impl InstructionFixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let mut fixture = Self {
                dir,
                vars: BTreeMap::new(),
            };
            for path in ["home/.config", "repo/.git", "repo/a/b"] {
                std::fs::create_dir_all(fixture.path(path)).unwrap();
            }
            let home = fixture.path("home").display().to_string();
            fixture.vars.insert("HOME".into(), home);
            fixture
        }

        fn path(&self, path: &str) -> PathBuf {
            std::fs::canonicalize(self.dir.path()).unwrap().join(path)
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.path(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn load(&self, instructions: &[&str]) -> Instructions {
            self.load_of(instructions, true)
        }

        /// Loads instructions of the project's settings or the user's.
        fn load_of(&self, instructions: &[&str], project: bool) -> Instructions {
            let name = "opencode.json".into();
            let origin = ConfigOrigin {
                name,
                path: None,
                layer: Layer::Project,
                project,
            };
            let location = SourceLocation {
                line: 1,
                column: 2,
                origin: std::sync::Arc::new(origin),
            };
            let entry = |text: &&str| InstructionEntry {
                text: (*text).into(),
                project,
                location: location.clone(),
            };
            let settings = Settings {
                instructions: instructions.iter().map(entry).collect(),
                ..Settings::default()
            };
            let environment = Environment::from_vars(self.vars.clone());
            let worktree = self.worktree();
            let search_filter = self.search_filter(&environment, &worktree);
            load(
                &settings,
                &environment,
                &worktree,
                &self.path("repo/a/b"),
                &search_filter,
            )
        }

        /// Returns a filter that shows everything except `secret/*`.
        fn search_filter(&self, environment: &Environment, worktree: &Worktree) -> SearchFilter {
            let rule = |pattern: &str, action| Rule {
                permission: "read".to_owned(),
                pattern: pattern.to_owned(),
                action,
                source: "test".to_owned(),
            };
            let rules = Rules::from(vec![
                rule("*", Action::Allow),
                rule("secret/*", Action::Deny),
            ]);
            let context =
                permission::PermissionContext::new(environment, worktree, &self.path("repo"));
            SearchFilter::new(&Policy {
                rules,
                context,
                ..Policy::default()
            })
        }

        fn worktree(&self) -> Worktree {
            Worktree::find(&self.path("repo"), &[self.path("other")], None)
        }

        fn found(&self, instructions: &[&str]) -> Vec<String> {
            self.load(instructions)
                .entries
                .into_iter()
                .map(|entry| entry.text)
                .collect()
        }
    }

    fn problems(loaded: &Instructions) -> Vec<String> {
        loaded.problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn users_file_comes_before_projects_nearest_first() {
        let fixture = InstructionFixture::new();
        fixture.write("home/.claude/CLAUDE.md", "claude");
        assert_eq!(fixture.found(&[]), ["claude"]);
        fixture.write("home/.config/opencode/AGENTS.md", "theirs");
        assert_eq!(fixture.found(&[]), ["theirs"]);
        fixture.write("home/.config/adjutant/AGENTS.md", "ours");
        fixture.write("repo/CONTEXT.md", "context");
        assert_eq!(fixture.found(&[]), ["ours", "context"]);
        fixture.write("repo/CLAUDE.md", "root claude");
        assert_eq!(fixture.found(&[]), ["ours", "root claude"]);
        fixture.write("repo/AGENTS.md", "root");
        fixture.write("repo/a/b/AGENTS.md", "near");
        fixture.write("repo/a/CLAUDE.md", "hidden by AGENTS.md");
        fixture.write("AGENTS.md", "above the project");
        assert_eq!(fixture.found(&[]), ["ours", "near", "root"]);
        fixture.write("other/AGENTS.md", "other root");
        assert_eq!(fixture.found(&[]), ["ours", "near", "root", "other root"]);
    }

    #[test]
    fn variables_exclude_files() {
        let mut fixture = InstructionFixture::new();
        fixture.write("home/.claude/CLAUDE.md", "own claude");
        fixture.write("repo/CLAUDE.md", "claude");
        fixture.write("repo/CONTEXT.md", "context");
        fixture
            .vars
            .insert("OPENCODE_DISABLE_CLAUDE_CODE".into(), "1".into());
        assert_eq!(fixture.found(&[]), ["context"]);
        fixture
            .vars
            .insert("OPENCODE_DISABLE_PROJECT_CONFIG".into(), "1".into());
        assert_eq!(fixture.found(&[]), Vec::<String>::new());
    }

    #[test]
    fn settings_name_files_globs_and_addresses() {
        let fixture = InstructionFixture::new();
        fixture.write("repo/docs/b.md", "b");
        fixture.write("repo/docs/a.md", "a");
        fixture.write("repo/docs/deep/c.md", "c");
        fixture.write("repo/docs/.git/d.md", "d");
        fixture.write("home/own.md", "own");
        fixture.write("repo/a/near.md", "near");
        assert_eq!(fixture.found(&["docs/*.md"]), ["a", "b"]);
        assert_eq!(
            fixture.found(&["docs/**/*.md", "docs/a.md"]),
            ["a", "b", "c"]
        );
        assert_eq!(fixture.found(&["near.md"]), ["near"]);
        let loaded = fixture.load(&[
            "https://x.example/a.md",
            "nope/*.md",
            "https://x.example/a.md",
        ]);
        assert_eq!(loaded.addresses, ["https://x.example/a.md"]);
        assert_eq!(
            problems(&loaded),
            ["opencode.json:1:2: instructions: there is no file \"nope/*.md\""]
        );
        assert_eq!(
            fixture.found(&["~/own.md"]),
            ["own"],
            "trust has decided about those before"
        );
        std::os::unix::fs::symlink(fixture.path("home/own.md"), fixture.path("repo/link.md"))
            .unwrap();
        let link = fixture.load(&["link.md"]);
        assert!(
            link.entries.is_empty() && problems(&link)[0].contains("leads out of the project"),
            "{link:?}"
        );
    }

    #[test]
    fn unreadable_file_is_no_instruction() {
        let fixture = InstructionFixture::new();
        for (path, text) in [
            ("repo/.env", "KEY=1"),
            ("repo/secret/a.md", "hush"),
            ("repo/plain.md", "plain"),
        ] {
            fixture.write(path, text);
        }
        for (to, link) in [
            (".env", "AGENTS.md"),
            ("../../secret/a.md", "a/b/AGENTS.md"),
            ("../plain.md", "a/AGENTS.md"),
        ] {
            std::os::unix::fs::symlink(to, fixture.path("repo").join(link)).unwrap();
        }
        let loaded = fixture.load(&[".env", "secret/*.md"]);
        assert_eq!(
            loaded
                .entries
                .iter()
                .map(|entry| entry.text.as_str())
                .collect::<Vec<_>>(),
            ["plain"]
        );
        let notices = problems(&loaded).join("\n");
        assert!(
            notices.contains("AGENTS.md: not read: reading .env needs permission"),
            "{notices}"
        );
        assert!(
            notices.contains("reading secret/a.md is not allowed"),
            "{notices}"
        );
        assert!(
            notices.contains(".env: not read: reading it needs permission"),
            "{notices}"
        );
    }

    /// A file that the user names for every project may be a link in one of them.
    #[test]
    fn file_in_project_is_projects_even_if_user_names_it() {
        let fixture = InstructionFixture::new();
        for (path, text) in [
            ("home/own.md", "own"),
            ("home/.ssh/id_rsa", "key"),
            ("repo/.env", "KEY=1"),
            ("repo/plain.md", "plain"),
            ("repo/secret/a.md", "hush"),
            ("above.md", "above"),
        ] {
            fixture.write(path, text);
        }
        let to = |path: &str| fixture.path(path).display().to_string();
        let home = to("home/own.md");
        for (to, link) in [
            (to("home/.ssh/id_rsa"), "CONTRIBUTING.md"),
            (home.clone(), "HOME.md"),
            (".env".to_owned(), "STYLE.md"),
            ("plain.md".to_owned(), "SAME.md"),
            (to("home/.ssh"), "docs"),
        ] {
            std::os::unix::fs::symlink(to, fixture.path("repo").join(link)).unwrap();
        }
        // The entry, the texts that are read if the user's settings have it, and the reported
        // problem.
        let table: [(&str, &[&str], &str); 13] = [
            (
                "CONTRIBUTING.md",
                &[],
                "CONTRIBUTING.md: not read: this link leads out of the project",
            ),
            (
                "HOME.md",
                &[],
                "HOME.md: not read: this link leads out of the project",
            ),
            (
                "./a/../HOME.md",
                &[],
                "HOME.md: not read: this link leads out of the project",
            ),
            (
                "../repo/HOME.md",
                &[],
                "HOME.md: not read: this link leads out of the project",
            ),
            (
                "H*.md",
                &[],
                "HOME.md: not read: this link leads out of the project",
            ),
            (
                "docs/*",
                &[],
                "not read: this link leads out of the project",
            ),
            (
                "STYLE.md",
                &[],
                "STYLE.md: not read: reading .env needs permission",
            ),
            (
                "secret/a.md",
                &[],
                "secret/a.md: not read: reading it is not allowed",
            ),
            ("SAME.md", &["plain"], ""),
            ("nope.md", &[], "there is no file \"nope.md\""),
            ("../../../above.md", &["above"], ""),
            ("~/own.md", &["own"], ""),
            (home.as_str(), &["own"], ""),
        ];
        for (entry, read, reported) in table {
            let loaded = fixture.load_of(&[entry], false);
            let texts: Vec<&str> = loaded
                .entries
                .iter()
                .map(|entry| entry.text.as_str())
                .collect();
            assert_eq!(texts, read, "{entry}");
            let notices = problems(&loaded);
            assert_eq!(
                notices.len(),
                usize::from(!reported.is_empty()),
                "{entry}: {notices:?}"
            );
            assert!(
                notices.iter().all(|notice| notice.contains(reported)),
                "{entry}: {notices:?}"
            );
            if entry == "nope.md" {
                // Other projects may have it.
                assert_eq!(loaded.problems[0].severity, ProblemSeverity::Note);
                let own = fixture.load(&[entry]);
                assert_eq!(own.problems[0].severity, ProblemSeverity::Warning);
            }
        }
    }

    #[test]
    #[cfg(unix)]
    fn links_out_of_the_project_are_not_followed() {
        let fixture = InstructionFixture::new();
        fixture.write("home/secret", "key");
        std::os::unix::fs::symlink(fixture.path("home/secret"), fixture.path("repo/AGENTS.md"))
            .unwrap();
        fixture.write("repo/inside.md", "inside");
        std::os::unix::fs::symlink(
            fixture.path("repo/inside.md"),
            fixture.path("repo/a/AGENTS.md"),
        )
        .unwrap();
        let loaded = fixture.load(&[]);
        assert_eq!(
            loaded
                .entries
                .iter()
                .map(|entry| entry.text.as_str())
                .collect::<Vec<_>>(),
            ["inside"]
        );
        assert!(
            problems(&loaded)[0].starts_with("AGENTS.md: not read: this link leads out"),
            "{:?}",
            loaded.problems
        );
    }

    #[test]
    fn invisible_characters_are_removed_and_counted() {
        let table = [
            ("plain", "plain", 0),
            ("a\u{200b}b\u{e0041}\u{e0042}", "ab", 3),
            ("x\u{202e}y\u{2066}z", "xyz", 2),
            ("\u{feff}bom", "bom", 1),
            (
                "family \u{1f468}\u{200d}\u{1f469}",
                "family \u{1f468}\u{200d}\u{1f469}",
                0,
            ),
            ("heart \u{2764}\u{fe0f}", "heart \u{2764}\u{fe0f}", 0),
            (
                "\u{646}\u{645}\u{6cc}\u{200c}\u{62e}",
                "\u{646}\u{645}\u{6cc}\u{200c}\u{62e}",
                0,
            ),
            ("a\u{200d}b", "ab", 1),
            ("é ü 漢字", "é ü 漢字", 0),
        ];
        for (text, expected, removed) in table {
            assert_eq!(visible(text), (expected.to_owned(), removed), "{text:?}");
        }
        let fixture = InstructionFixture::new();
        fixture.write("repo/AGENTS.md", "be\u{e0041}\u{e0042} kind");
        let loaded = fixture.load(&[]);
        assert_eq!(loaded.entries[0].text, "be kind");
        assert_eq!(
            problems(&loaded),
            ["AGENTS.md: 2 invisible characters taken out"]
        );
    }

    #[test]
    fn long_file_is_cut_with_note() {
        let fixture = InstructionFixture::new();
        fixture.write("repo/AGENTS.md", &"x".repeat(MAX_FILE_BYTES + 10));
        let loaded = fixture.load(&[]);
        assert!(loaded.entries[0].text.ends_with("it is too long.)"));
        assert_eq!(
            problems(&loaded),
            ["AGENTS.md: this file is too long: only its first 256 KiB are used"]
        );
    }

    #[test]
    fn files_next_to_read_file_are_found() {
        let fixture = InstructionFixture::new();
        fixture.write("repo/AGENTS.md", "root");
        fixture.write("repo/a/AGENTS.md", "a");
        fixture.write("repo/a/CLAUDE.md", "not this one");
        fixture.write("repo/a/b/CONTEXT.md", "b");
        fixture.write("repo/a/b/x.rs", "");
        let environment = Environment::from_vars(fixture.vars.clone());
        let root = fixture.path("repo");
        let texts_beside = |path: &str, known: &[&str]| {
            let known: Vec<PathBuf> = known.iter().map(|path| fixture.path(path)).collect();
            let known = |path: &Path| known.iter().any(|known| known == path);
            let worktree = fixture.worktree();
            let search_filter = fixture.search_filter(&environment, &worktree);
            let path = fixture.path(path);
            let known = |candidate: &Path| candidate == path || known(candidate);
            let found = instructions_in(
                path.parent().unwrap(),
                &root,
                &environment,
                &worktree,
                &search_filter,
                &known,
            );
            found
                .entries
                .into_iter()
                .map(|entry| entry.text)
                .collect::<Vec<_>>()
        };
        assert_eq!(texts_beside("repo/a/b/x.rs", &[]), ["b", "a"]);
        assert_eq!(texts_beside("repo/a/b/x.rs", &["repo/a/AGENTS.md"]), ["b"]);
        assert_eq!(texts_beside("repo/a/AGENTS.md", &[]), Vec::<String>::new());
        assert_eq!(texts_beside("repo/x.rs", &[]), Vec::<String>::new());
        assert_eq!(texts_beside("home/x", &[]), Vec::<String>::new());
    }

    #[test]
    fn new_file_makes_fingerprint_stale() {
        let fixture = InstructionFixture::new();
        fixture.write("repo/docs/a.md", "a");
        let loaded = fixture.load(&["docs/*.md"]);
        assert!(!loaded.fingerprint.is_stale());
        fixture.write("repo/AGENTS.md", "new");
        assert!(loaded.fingerprint.is_stale());
    }
}
