//! Instruction files: `AGENTS.md` and its relatives, the user's own, the project's, those the
//! settings name, and those beside a file that is being read. Reading only; addresses are listed for
//! somebody else to fetch.
//!
//! What a file says goes to the model, so a project's files pass the gate that reading them would pass, whoever
//! names them, its links that lead out of the project are not followed, and characters that nobody can see are
//! taken out and counted.

use std::collections::HashSet;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

use base::environment::Environment;
use base::text::visible;
use base::worktree::{Worktree, normal};
use config::node::{ConfigOrigin, Layer, SourceLocation};
use config::settings::{InstructionEntry, Settings};
use config::{ConfigFingerprint, Problem, ProblemCode};
use permission::Action;
use permission::sight::Sight;

/// The names looked for, best first: the first that is found anywhere is the only one used.
pub const NAMES: [&str; 3] = ["AGENTS.md", "CLAUDE.md", "CONTEXT.md"];
/// The largest file that is read whole, in bytes. What is longer is cut, and says so.
pub const LARGEST: usize = 256 << 10;
/// How many files one glob may bring.
const MOST: usize = 200;

/// A text for the system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstructionText {
    /// The path or address, for the model and for telling entries apart.
    pub source: String,
    /// Where it is, if it is a file.
    pub path: Option<PathBuf>,
    pub text: String,
}

impl InstructionText {
    /// As the model sees it.
    pub fn block(&self) -> String {
        format!("Instructions from: {}\n{}", self.source, self.text)
    }
}

/// Instructions, and what there is to say about them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Instructions {
    /// In order: the user's, the project's (nearest first), those the settings name.
    pub entries: Vec<InstructionText>,
    /// Addresses the settings name. Somebody else fetches them; here what was last fetched is read.
    pub addresses: Vec<String>,
    /// Those of them that were never fetched.
    pub missing: Vec<String>,
    /// What was not read and why, what was taken out.
    pub problems: Vec<Problem>,
    /// What was looked at, to notice a change.
    pub fingerprint: ConfigFingerprint,
}

/// Reads the instructions that hold in a directory; of the project, those that `sight` shows. Blocks
/// while it reads.
pub fn load(
    settings: &Settings,
    environment: &Environment,
    worktree: &Worktree,
    cwd: &Path,
    sight: &Sight,
) -> Instructions {
    let mut reader =
        InstructionReader { environment, worktree, sight, found: Instructions::default(), read: HashSet::new() };
    let claude = !on(environment, "DISABLE_CLAUDE_CODE") && !on(environment, "DISABLE_CLAUDE_CODE_PROMPT");
    let project = !on(environment, "DISABLE_PROJECT_CONFIG");

    // The user's own: the first that is there.
    let mut own: Vec<PathBuf> = Vec::new();
    for name in ["ADJUTANT_CONFIG_DIR", "OPENCODE_CONFIG_DIR"] {
        own.extend(environment.var(name).map(|dir| cwd.join(dir).join("AGENTS.md")));
    }
    if own.is_empty() {
        own.push(environment.dirs.config.join("AGENTS.md"));
        own.push(environment.dirs.config.with_file_name("opencode").join("AGENTS.md"));
    }
    if let Some(home) = environment.home.as_ref().filter(|_| claude) {
        own.push(home.join(".claude").join("CLAUDE.md"));
    }
    for path in own {
        if reader.file(&path, FileOwner::Users) {
            break;
        }
    }

    // The project's, in each of its roots.
    if project {
        for start in std::iter::once(cwd).chain(worktree.extra.iter().map(PathBuf::as_path)) {
            let up = upwards(start, worktree);
            for name in NAMES.into_iter().filter(|name| claude || *name != "CLAUDE.md") {
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
        reader.named(instruction, cwd, project);
    }
    for address in reader.found.addresses.clone() {
        reader.page(address);
    }
    reader.found
}

/// Where the page at an address is kept once it was fetched.
pub fn kept(environment: &Environment, address: &str) -> PathBuf {
    let digest = ring::digest::digest(&ring::digest::SHA256, address.as_bytes());
    let name = base::text::hex(&digest.as_ref()[..16]);
    environment.dirs.cache.join("instructions").join(format!("{name}.md"))
}

/// The instruction files beside a file that is read, nearest first: one for each directory from the
/// file's up to, but without, the root it lies in. `known` says which are in front of the model
/// already: in the system prompt, or claimed earlier in this message.
pub fn beside(
    path: &Path,
    cwd: &Path,
    environment: &Environment,
    worktree: &Worktree,
    sight: &Sight,
    known: &dyn Fn(&Path) -> bool,
) -> Instructions {
    let mut reader =
        InstructionReader { environment, worktree, sight, found: Instructions::default(), read: HashSet::new() };
    let claude = !on(environment, "DISABLE_CLAUDE_CODE") && !on(environment, "DISABLE_CLAUDE_CODE_PROMPT");
    let path = normal(path);
    let roots = std::iter::once(cwd).chain(worktree.extra.iter().map(PathBuf::as_path));
    let Some(root) = roots.filter(|root| path.starts_with(root)).max_by_key(|root| root.components().count()) else {
        return reader.found;
    };
    let Some(dir) = path.parent() else { return reader.found };
    for dir in dir.ancestors().take_while(|dir| *dir != root && dir.starts_with(root)) {
        for name in NAMES.into_iter().filter(|name| claude || *name != "CLAUDE.md") {
            let candidate = dir.join(name);
            if !candidate.is_file() {
                continue;
            }
            if candidate != path && !known(&candidate) {
                reader.file(&candidate, FileOwner::Inside);
            }
            break;
        }
    }
    reader.found
}

fn on(environment: &Environment, name: &str) -> bool {
    environment.setting(name).is_some_and(|value| !matches!(value, "0" | "false"))
}

/// From a directory up to the project's root, nearest first; a directory elsewhere stands alone.
fn upwards(start: &Path, worktree: &Worktree) -> Vec<PathBuf> {
    let start = std::fs::canonicalize(start).unwrap_or_else(|_| normal(start));
    if !start.starts_with(&worktree.root) {
        return vec![start];
    }
    start.ancestors().take_while(|dir| dir.starts_with(&worktree.root)).map(Path::to_path_buf).collect()
}

/// Whose a file is, and what holds for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileOwner {
    /// The user's: it is read.
    Users,
    /// Named by the project, which says that it lies elsewhere: it passes the gate.
    Projects,
    /// The project's, whoever names it: it passes the gate, and leads nowhere else.
    Inside,
}

struct InstructionReader<'a> {
    environment: &'a Environment,
    worktree: &'a Worktree,
    sight: &'a Sight,
    found: Instructions,
    /// The paths of the entries.
    read: HashSet<PathBuf>,
}

impl InstructionReader<'_> {
    /// Reads a file if it is there. Says whether it is.
    fn file(&mut self, path: &Path, whose: FileOwner) -> bool {
        let meta: Metadata = match self.found.fingerprint.look(path) {
            Ok(Some(meta)) => meta,
            Ok(None) => return false,
            Err(e) => {
                let text = format!("not read: {}", config::disk::plain(&e));
                self.problem(ProblemCode::Unreadable, path, text);
                return false;
            }
        };
        if !meta.is_file() {
            return false;
        }
        let resolved = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if whose == FileOwner::Inside && !self.worktree.contains(&resolved) {
            let text = format!("not read: this link leads out of the project, to {}", resolved.display());
            self.problem(ProblemCode::Link, path, text);
            return false;
        }
        if whose != FileOwner::Users
            && let Some(why) = self.hidden(path, &resolved)
        {
            self.problem(ProblemCode::NotReadable, path, format!("not read: {why}"));
            return false;
        }
        if self.read.contains(path) || self.read.contains(&resolved) {
            return true;
        }
        match read_start(path) {
            Ok((bytes, whole)) => {
                self.add(path.display().to_string(), Some(path.to_path_buf()), &bytes, whole);
                true
            }
            Err(e) => {
                let text = format!("not read: {}", config::disk::plain(&e));
                self.problem(ProblemCode::Unreadable, path, text);
                false
            }
        }
    }

    /// Notes something about an instruction file as a whole.
    fn problem(&mut self, code: ProblemCode, path: &Path, text: String) {
        let name = match path.is_absolute() {
            true => config::disk::shown(path, self.worktree, self.environment),
            false => path.display().to_string(),
        };
        let project = path.starts_with(&self.worktree.root);
        let origin = ConfigOrigin { name, path: Some(path.to_path_buf()), layer: Layer::Project, project };
        let location = SourceLocation::whole(&std::sync::Arc::new(origin));
        self.found.problems.push(Problem::warning(code, &location, "", text));
    }

    /// Why a file is not for the model to see, by its name or by what it leads to. Nobody is asked.
    fn hidden(&self, path: &Path, resolved: &Path) -> Option<String> {
        let action = [path, resolved].map(|path| self.sight.judge(path)).into_iter().max()?;
        let name = if path == resolved { "it".to_owned() } else { self.sight.name(resolved) };
        match action {
            Action::Allow => None,
            Action::Ask => Some(format!("reading {name} needs permission")),
            Action::Deny => Some(format!("reading {name} is not allowed")),
        }
    }

    /// Reads what was last fetched from an address.
    fn page(&mut self, address: String) {
        let path = kept(self.environment, &address);
        let there = self.found.fingerprint.look(&path).ok().flatten().is_some();
        match read_start(&path).ok().filter(|_| there) {
            Some((bytes, whole)) => self.add(address, None, &bytes, whole),
            None => self.found.missing.push(address),
        }
    }

    /// Adds a text, with what nobody can see taken out.
    fn add(&mut self, source: String, path: Option<PathBuf>, bytes: &[u8], whole: bool) {
        let text = String::from_utf8_lossy(bytes);
        let (mut text, removed) = visible(text.trim());
        if removed > 0 {
            let text = format!("{} taken out", base::text::count(removed, "invisible character"));
            self.problem(ProblemCode::HiddenCharacters, path.as_deref().unwrap_or(Path::new(&source)), text);
        }
        if !whole {
            text.push_str("\n\n(The rest of this file is left out: it is too long.)");
            let most = LARGEST >> 10;
            let text = format!("this file is too long: only its first {most} KiB are used");
            self.problem(ProblemCode::TooMuch, path.as_deref().unwrap_or(Path::new(&source)), text);
        }
        if !text.is_empty() {
            self.read.extend(path.clone());
            self.found.entries.push(InstructionText { source, path, text });
        }
    }

    /// Reads what an entry of `instructions` names.
    fn named(&mut self, instruction: &InstructionEntry, cwd: &Path, project: bool) {
        let text = instruction.text.as_str();
        if text.starts_with("http://") || text.starts_with("https://") {
            if !self.found.addresses.iter().any(|address| address == text) {
                self.found.addresses.push(text.to_owned());
            }
            return;
        }
        let home = self.environment.home.as_deref();
        let (dirs, pattern, searched) = match (text.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => (vec![home.to_path_buf()], rest, false),
            _ if text.starts_with('/') => (vec![PathBuf::from("/")], text.trim_start_matches('/'), false),
            _ if !project => (vec![self.environment.dirs.config.clone()], text, false),
            _ => (upwards(cwd, self.worktree), text, true),
        };
        let (mut any, told) = (false, self.found.problems.len());
        for dir in dirs {
            for path in self.matching(&dir, pattern, &instruction.location) {
                // What is found in the project is the project's, also where the user names it, for whatever project
                // this is: a link there may lead anywhere. What says itself that it lies elsewhere is the user's, or
                // was looked at when the project was trusted.
                let whose = match instruction.project {
                    _ if searched && self.worktree.contains(&path) => FileOwner::Inside,
                    false => FileOwner::Users,
                    true => FileOwner::Projects,
                };
                any |= self.file(&path, whose);
            }
        }
        if !any && self.found.problems.len() == told {
            let text = format!("there is no file \"{text}\"");
            let problem = Problem::warning(ProblemCode::MissingFile, &instruction.location, "instructions", text);
            self.found.problems.push(problem);
        }
    }

    /// The files below a directory that fit a pattern, sorted. A pattern without wildcards is a path.
    fn matching(&mut self, dir: &Path, pattern: &str, location: &SourceLocation) -> Vec<PathBuf> {
        let wild = |part: &str| part.contains(['*', '?', '[', '{']);
        if !wild(pattern) {
            let path = normal(&dir.join(pattern));
            return self.found.fingerprint.look(&path).ok().flatten().map(|_| path).into_iter().collect();
        }
        // Walk only below the part before the first wildcard.
        let fixed: PathBuf = pattern.split('/').take_while(|part| !wild(part)).collect();
        let start = normal(&dir.join(&fixed));
        let rest: Vec<&str> = pattern.split('/').skip_while(|part| !wild(part)).collect();
        let depth = if rest.contains(&"**") { 12 } else { rest.len() };
        let Ok(glob) = globset::GlobBuilder::new(&rest.join("/")).literal_separator(true).build() else {
            let text = format!("\"{pattern}\" is not a pattern");
            self.found.problems.push(Problem::warning(ProblemCode::WrongValue, location, "instructions", text));
            return Vec::new();
        };
        let glob = glob.compile_matcher();
        let mut found = Vec::new();
        self.walk(&start, &start, depth, &glob, &mut found);
        found.sort();
        found
    }

    fn walk(&mut self, root: &Path, dir: &Path, deeper: usize, glob: &globset::GlobMatcher, found: &mut Vec<PathBuf>) {
        if !self.found.fingerprint.look(dir).ok().flatten().is_some_and(|meta| meta.is_dir()) {
            return;
        }
        let Ok(list) = std::fs::read_dir(dir) else { return };
        for entry in list.flatten() {
            if found.len() >= MOST {
                return;
            }
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                let skip = matches!(entry.file_name().to_str(), Some(".git" | "node_modules" | "target"));
                if deeper > 1 && !skip {
                    self.walk(root, &path, deeper - 1, glob, found);
                }
            } else if path.strip_prefix(root).is_ok_and(|rest| glob.is_match(rest)) {
                found.push(path);
            }
        }
    }
}

/// The start of a file, and whether that is all of it.
fn read_start(path: &Path) -> std::io::Result<(Vec<u8>, bool)> {
    use std::io::Read;
    let mut bytes = Vec::new();
    base::file::open_regular(path)?.take(LARGEST as u64 + 1).read_to_end(&mut bytes)?;
    let whole = bytes.len() <= LARGEST;
    bytes.truncate(LARGEST);
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
            let mut place = Self { dir, vars: BTreeMap::new() };
            for path in ["home/.config", "repo/.git", "repo/a/b"] {
                std::fs::create_dir_all(place.path(path)).unwrap();
            }
            let home = place.path("home").display().to_string();
            place.vars.insert("HOME".into(), home);
            place
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

        /// Of the project's settings or the user's.
        fn load_of(&self, instructions: &[&str], project: bool) -> Instructions {
            let name = "opencode.json".into();
            let origin = ConfigOrigin { name, path: None, layer: Layer::Project, project };
            let location = SourceLocation { line: 1, column: 2, origin: std::sync::Arc::new(origin) };
            let entry = |text: &&str| InstructionEntry { text: (*text).into(), project, location: location.clone() };
            let settings = Settings { instructions: instructions.iter().map(entry).collect(), ..Settings::default() };
            let environment = Environment::from_vars(self.vars.clone());
            let worktree = self.worktree();
            let sight = self.sight(&environment, &worktree);
            load(&settings, &environment, &worktree, &self.path("repo/a/b"), &sight)
        }

        /// By the rules of whoever may read everything but `secret/*`.
        fn sight(&self, environment: &Environment, worktree: &Worktree) -> Sight {
            let rule = |pattern: &str, action| Rule {
                permission: "read".to_owned(),
                pattern: pattern.to_owned(),
                action,
                source: "test".to_owned(),
            };
            let rules = Rules::from(vec![rule("*", Action::Allow), rule("secret/*", Action::Deny)]);
            let place = permission::PermissionContext::new(environment, worktree, &self.path("repo"));
            Sight::new(&Policy { rules, place, ..Policy::default() })
        }

        fn worktree(&self) -> Worktree {
            Worktree::find(&self.path("repo"), &[self.path("other")], None)
        }

        fn found(&self, instructions: &[&str]) -> Vec<String> {
            self.load(instructions).entries.into_iter().map(|entry| entry.text).collect()
        }
    }

    fn problems(loaded: &Instructions) -> Vec<String> {
        loaded.problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_users_then_the_projects_nearest_first() {
        let place = InstructionFixture::new();
        place.write("home/.claude/CLAUDE.md", "claude");
        assert_eq!(place.found(&[]), ["claude"]);
        place.write("home/.config/opencode/AGENTS.md", "theirs");
        assert_eq!(place.found(&[]), ["theirs"]);
        place.write("home/.config/adjutant/AGENTS.md", "ours");
        place.write("repo/CONTEXT.md", "context");
        assert_eq!(place.found(&[]), ["ours", "context"]);
        place.write("repo/CLAUDE.md", "root claude");
        assert_eq!(place.found(&[]), ["ours", "root claude"]);
        place.write("repo/AGENTS.md", "root");
        place.write("repo/a/b/AGENTS.md", "near");
        place.write("repo/a/CLAUDE.md", "hidden by AGENTS.md");
        place.write("AGENTS.md", "above the project");
        assert_eq!(place.found(&[]), ["ours", "near", "root"]);
        place.write("other/AGENTS.md", "other root");
        assert_eq!(place.found(&[]), ["ours", "near", "root", "other root"]);
    }

    #[test]
    fn variables_leave_files_out() {
        let mut place = InstructionFixture::new();
        place.write("home/.claude/CLAUDE.md", "own claude");
        place.write("repo/CLAUDE.md", "claude");
        place.write("repo/CONTEXT.md", "context");
        place.vars.insert("OPENCODE_DISABLE_CLAUDE_CODE".into(), "1".into());
        assert_eq!(place.found(&[]), ["context"]);
        place.vars.insert("OPENCODE_DISABLE_PROJECT_CONFIG".into(), "1".into());
        assert_eq!(place.found(&[]), Vec::<String>::new());
    }

    #[test]
    fn settings_name_files_globs_and_addresses() {
        let place = InstructionFixture::new();
        place.write("repo/docs/b.md", "b");
        place.write("repo/docs/a.md", "a");
        place.write("repo/docs/deep/c.md", "c");
        place.write("repo/docs/.git/d.md", "d");
        place.write("home/own.md", "own");
        place.write("repo/a/near.md", "near");
        assert_eq!(place.found(&["docs/*.md"]), ["a", "b"]);
        assert_eq!(place.found(&["docs/**/*.md", "docs/a.md"]), ["a", "b", "c"]);
        assert_eq!(place.found(&["near.md"]), ["near"]);
        let loaded = place.load(&["https://x.example/a.md", "nope/*.md", "https://x.example/a.md"]);
        assert_eq!(loaded.addresses, ["https://x.example/a.md"]);
        assert_eq!(problems(&loaded), ["opencode.json:1:2: instructions: there is no file \"nope/*.md\""]);
        assert_eq!(place.found(&["~/own.md"]), ["own"], "trust has decided about those before");
        std::os::unix::fs::symlink(place.path("home/own.md"), place.path("repo/link.md")).unwrap();
        let link = place.load(&["link.md"]);
        assert!(link.entries.is_empty() && problems(&link)[0].contains("leads out of the project"), "{link:?}");
    }

    #[test]
    fn what_reading_would_not_show_is_no_instruction() {
        let place = InstructionFixture::new();
        for (path, text) in [("repo/.env", "KEY=1"), ("repo/secret/a.md", "hush"), ("repo/plain.md", "plain")] {
            place.write(path, text);
        }
        for (to, link) in
            [(".env", "AGENTS.md"), ("../../secret/a.md", "a/b/AGENTS.md"), ("../plain.md", "a/AGENTS.md")]
        {
            std::os::unix::fs::symlink(to, place.path("repo").join(link)).unwrap();
        }
        let loaded = place.load(&[".env", "secret/*.md"]);
        assert_eq!(loaded.entries.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>(), ["plain"]);
        let notices = problems(&loaded).join("\n");
        assert!(notices.contains("AGENTS.md: not read: reading .env needs permission"), "{notices}");
        assert!(notices.contains("reading secret/a.md is not allowed"), "{notices}");
        assert!(notices.contains(".env: not read: reading it needs permission"), "{notices}");
    }

    /// What the user names for every project is found in one that may have made a link of it.
    #[test]
    fn what_is_found_in_a_project_is_the_projects_whoever_names_it() {
        let place = InstructionFixture::new();
        for (path, text) in [
            ("home/own.md", "own"),
            ("home/.ssh/id_rsa", "key"),
            ("repo/.env", "KEY=1"),
            ("repo/plain.md", "plain"),
            ("repo/secret/a.md", "hush"),
            ("above.md", "above"),
        ] {
            place.write(path, text);
        }
        let to = |path: &str| place.path(path).display().to_string();
        let home = to("home/own.md");
        for (to, link) in [
            (to("home/.ssh/id_rsa"), "CONTRIBUTING.md"),
            (home.clone(), "HOME.md"),
            (".env".to_owned(), "STYLE.md"),
            ("plain.md".to_owned(), "SAME.md"),
            (to("home/.ssh"), "docs"),
        ] {
            std::os::unix::fs::symlink(to, place.path("repo").join(link)).unwrap();
        }
        // The entry, what is read where the user writes it, and what is told then.
        let table: [(&str, &[&str], &str); 13] = [
            ("CONTRIBUTING.md", &[], "CONTRIBUTING.md: not read: this link leads out of the project"),
            ("HOME.md", &[], "HOME.md: not read: this link leads out of the project"),
            ("./a/../HOME.md", &[], "HOME.md: not read: this link leads out of the project"),
            ("../repo/HOME.md", &[], "HOME.md: not read: this link leads out of the project"),
            ("H*.md", &[], "HOME.md: not read: this link leads out of the project"),
            ("docs/*", &[], "not read: this link leads out of the project"),
            ("STYLE.md", &[], "STYLE.md: not read: reading .env needs permission"),
            ("secret/a.md", &[], "secret/a.md: not read: reading it is not allowed"),
            ("SAME.md", &["plain"], ""),
            ("nope.md", &[], "there is no file \"nope.md\""),
            ("../../../above.md", &["above"], ""),
            ("~/own.md", &["own"], ""),
            (home.as_str(), &["own"], ""),
        ];
        for (entry, read, said) in table {
            let loaded = place.load_of(&[entry], false);
            let texts: Vec<&str> = loaded.entries.iter().map(|entry| entry.text.as_str()).collect();
            assert_eq!(texts, read, "{entry}");
            let notices = problems(&loaded);
            assert_eq!(notices.len(), usize::from(!said.is_empty()), "{entry}: {notices:?}");
            assert!(notices.iter().all(|notice| notice.contains(said)), "{entry}: {notices:?}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn links_out_of_the_project_are_not_followed() {
        let place = InstructionFixture::new();
        place.write("home/secret", "key");
        std::os::unix::fs::symlink(place.path("home/secret"), place.path("repo/AGENTS.md")).unwrap();
        place.write("repo/inside.md", "inside");
        std::os::unix::fs::symlink(place.path("repo/inside.md"), place.path("repo/a/AGENTS.md")).unwrap();
        let loaded = place.load(&[]);
        assert_eq!(loaded.entries.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>(), ["inside"]);
        assert!(problems(&loaded)[0].starts_with("AGENTS.md: not read: this link leads out"), "{:?}", loaded.problems);
    }

    #[test]
    fn what_nobody_sees_is_taken_out_and_counted() {
        let table = [
            ("plain", "plain", 0),
            ("a\u{200b}b\u{e0041}\u{e0042}", "ab", 3),
            ("x\u{202e}y\u{2066}z", "xyz", 2),
            ("\u{feff}bom", "bom", 1),
            ("family \u{1f468}\u{200d}\u{1f469}", "family \u{1f468}\u{200d}\u{1f469}", 0),
            ("heart \u{2764}\u{fe0f}", "heart \u{2764}\u{fe0f}", 0),
            ("\u{646}\u{645}\u{6cc}\u{200c}\u{62e}", "\u{646}\u{645}\u{6cc}\u{200c}\u{62e}", 0),
            ("a\u{200d}b", "ab", 1),
            ("é ü 漢字", "é ü 漢字", 0),
        ];
        for (text, expected, removed) in table {
            assert_eq!(visible(text), (expected.to_owned(), removed), "{text:?}");
        }
        let place = InstructionFixture::new();
        place.write("repo/AGENTS.md", "be\u{e0041}\u{e0042} kind");
        let loaded = place.load(&[]);
        assert_eq!(loaded.entries[0].text, "be kind");
        assert_eq!(problems(&loaded), ["AGENTS.md: 2 invisible characters taken out"]);
    }

    #[test]
    fn long_files_are_cut_and_say_so() {
        let place = InstructionFixture::new();
        place.write("repo/AGENTS.md", &"x".repeat(LARGEST + 10));
        let loaded = place.load(&[]);
        assert!(loaded.entries[0].text.ends_with("it is too long.)"));
        assert_eq!(problems(&loaded), ["AGENTS.md: this file is too long: only its first 256 KiB are used"]);
    }

    #[test]
    fn files_beside_a_file() {
        let place = InstructionFixture::new();
        place.write("repo/AGENTS.md", "root");
        place.write("repo/a/AGENTS.md", "a");
        place.write("repo/a/CLAUDE.md", "not this one");
        place.write("repo/a/b/CONTEXT.md", "b");
        place.write("repo/a/b/x.rs", "");
        let environment = Environment::from_vars(place.vars.clone());
        let root = place.path("repo");
        let beside = |path: &str, known: &[&str]| {
            let known: Vec<PathBuf> = known.iter().map(|path| place.path(path)).collect();
            let known = |path: &Path| known.iter().any(|known| known == path);
            let worktree = place.worktree();
            let sight = place.sight(&environment, &worktree);
            let found = beside(&place.path(path), &root, &environment, &worktree, &sight, &known);
            found.entries.into_iter().map(|entry| entry.text).collect::<Vec<_>>()
        };
        assert_eq!(beside("repo/a/b/x.rs", &[]), ["b", "a"]);
        assert_eq!(beside("repo/a/b/x.rs", &["repo/a/AGENTS.md"]), ["b"]);
        assert_eq!(beside("repo/a/AGENTS.md", &[]), Vec::<String>::new());
        assert_eq!(beside("repo/x.rs", &[]), Vec::<String>::new());
        assert_eq!(beside("home/x", &[]), Vec::<String>::new());
    }

    #[test]
    fn a_new_file_is_noticed() {
        let place = InstructionFixture::new();
        place.write("repo/docs/a.md", "a");
        let loaded = place.load(&["docs/*.md"]);
        assert!(!loaded.fingerprint.is_stale());
        place.write("repo/AGENTS.md", "new");
        assert!(loaded.fingerprint.is_stale());
    }
}
