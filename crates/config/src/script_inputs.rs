//! The project files that a command line runs, as far as it names them. A consent covers their
//! contents; other parts that would run are listed as not covered.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use permission::PermissionContext;
use permission::shell::{Name, analyze, commands};
use permission::wildcard::matches;

/// Limits: arguments examined, files and bytes of a directory or a file.
const MAX_ARGUMENTS: usize = 256;
const MAX_FILES: usize = 500;
const MAX_BYTES: u64 = 32 << 20;

/// Limits of files whose contents are searched for further names: files, bytes of each, names of
/// each.
const MAX_SEARCHED_FILES: usize = 100;
const MAX_SEARCHED_BYTES: u64 = 64 << 10;
const MAX_SEARCHED_NAMES: usize = 500;

/// Extensions of files that are run; other files are data.
const CODE_EXTENSIONS: [&str; 40] = [
    "sh",
    "bash",
    "zsh",
    "fish",
    "ksh",
    "csh",
    "js",
    "mjs",
    "cjs",
    "jsx",
    "ts",
    "mts",
    "cts",
    "tsx",
    "py",
    "rb",
    "pl",
    "lua",
    "php",
    "mk",
    "mak",
    "r",
    "jl",
    "tcl",
    "ps1",
    "psm1",
    "swift",
    "kts",
    "groovy",
    "scala",
    "exs",
    "escript",
    "dart",
    "nim",
    "lisp",
    "scm",
    "clj",
    "el",
    "scpt",
    "applescript",
];

/// Limits: directories that a command line starts in or changes to, and nesting of command strings.
const MAX_BASES: usize = 16;
const MAX_DEPTH: usize = 4;

/// Programs, with the files of their start directory that decide what they run.
const MANIFESTS_BY_PROGRAM: [(&[&str], &[&str]); 11] = [
    (
        &["npm", "npx", "pnpm", "pnpx", "yarn", "bun", "bunx"],
        &["package.json", ".npmrc", ".yarnrc.yml"],
    ),
    (&["make", "gmake"], &["GNUmakefile", "makefile", "Makefile"]),
    (&["just"], &["justfile", "Justfile", ".justfile"]),
    (&["task"], &["Taskfile.yml", "Taskfile.yaml"]),
    (
        &["cargo"],
        &["Cargo.toml", "build.rs", ".cargo/config.toml"],
    ),
    (&["deno"], &["deno.json", "deno.jsonc"]),
    (
        &["uv", "poetry", "pipenv", "hatch", "pdm"],
        &["pyproject.toml", "Pipfile"],
    ),
    (
        &["docker", "docker-compose", "podman"],
        &[
            "docker-compose.yml",
            "docker-compose.yaml",
            "compose.yml",
            "compose.yaml",
            "Dockerfile",
        ],
    ),
    (&["rake", "bundle"], &["Rakefile", "Gemfile"]),
    (&["composer"], &["composer.json"]),
    (&["mise"], &["mise.toml", ".mise.toml"]),
];

/// Programs that run the package named by the next argument, from any source.
const PACKAGE_RUNNERS: [&str; 8] = [
    "npx", "pnpx", "bunx", "uvx", "pipx", "dlx", "tsx", "dotenvx",
];

/// Programs that build sources and run the result.
const BUILD_TOOLS: [&str; 5] = ["cargo", "go", "gradle", "mvn", "dotnet"];

/// Programs that run a directory or a module.
const INTERPRETERS: [&str; 29] = [
    "python",
    "pypy",
    "node",
    "deno",
    "bun",
    "ts-node",
    "tsx",
    "ruby",
    "go",
    "perl",
    "php",
    "java",
    "lua",
    "luajit",
    "Rscript",
    "julia",
    "tclsh",
    "wish",
    "pwsh",
    "swift",
    "groovy",
    "scala",
    "elixir",
    "escript",
    "dart",
    "sbcl",
    "guile",
    "clojure",
    "osascript",
];

/// Programs that run command strings and scripts.
const SHELLS: [&str; 9] = [
    "sh", "bash", "dash", "zsh", "ksh", "ash", "fish", ".", "source",
];

/// Extensions that interpreters append to a file name.
const ENDINGS: [&str; 6] = ["js", "mjs", "cjs", "ts", "rb", "pm"];

/// Directories of a project that contain programs of its dependencies.
const BINS: [&str; 4] = ["node_modules/.bin", ".venv/bin", "venv/bin", "vendor/bin"];

/// System directories, whose contents change with updates.
const SYSTEM: [&str; 16] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/opt",
    "/nix",
    "/snap",
    "/etc",
    "/dev",
    "/proc",
    "/sys",
    "/run",
    "/Library",
    "/System",
    "/Applications",
];

/// The files of a project that a command line runs, and descriptions of the parts that are not
/// covered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ScriptInputs {
    pub(crate) files: Vec<PathBuf>,
    /// The names and digests of the files, one line each.
    pub(crate) content: String,
    pub(crate) not_covered: Vec<String>,
}

/// Returns the files that a program with these arguments runs. `bases` are the directories that it
/// may start in.
pub(crate) fn of_command(words: &[&str], bases: &[PathBuf], root: &Path) -> ScriptInputs {
    let names: Vec<Name> = words.iter().map(|word| plain(word)).collect();
    InputCollector::new(root).all(vec![names], bases)
}

/// Returns the files that a shell command line runs.
pub(crate) fn of_line(line: &str, bases: &[PathBuf], root: &Path) -> ScriptInputs {
    InputCollector::new(root).all(lines(line), bases)
}

fn plain(word: &str) -> Name {
    Name {
        text: word.to_owned(),
        is_pattern: false,
        is_computed: false,
        is_written: false,
    }
}

/// Parses a shell text into commands. Unparsable text is split at every character that could end a
/// word.
fn lines(text: &str) -> Vec<Vec<Name>> {
    let is_end = |c: char| {
        c.is_whitespace()
            || matches!(
                c,
                ';' | '|' | '&' | '(' | ')' | '<' | '>' | '"' | '\'' | '`'
            )
    };
    commands(text).unwrap_or_else(|| {
        vec![
            text.split(is_end)
                .filter(|word| !word.is_empty())
                .map(plain)
                .collect(),
        ]
    })
}

/// The certainty that a command line runs a file that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileRole {
    /// It is the program, or the script of an interpreter.
    Program,
    /// It is the first operand of a program that may run it, such as `env`, or use it as data.
    FirstOperand,
    Other,
}

/// The collector of the files of one command line.
struct InputCollector {
    covered: ScriptInputs,
    root: PathBuf,
    /// The number of arguments that may still be examined.
    words: usize,
}

impl InputCollector {
    fn new(root: &Path) -> Self {
        let root = std::fs::canonicalize(root).unwrap_or_else(|_| root.to_path_buf());
        Self {
            covered: ScriptInputs::default(),
            root,
            words: MAX_ARGUMENTS,
        }
    }

    fn all(mut self, commands: Vec<Vec<Name>>, bases: &[PathBuf]) -> ScriptInputs {
        let program = commands.first().and_then(|names| names.first());
        if let Some(program) =
            program.filter(|program| !program.text.contains('/') && !program.is_computed)
        {
            self.covered
                .add_not_covered(format!("{}, looked up on PATH", program.text));
        }
        self.commands(commands, bases.to_vec(), 0);
        let root = self.root.clone();
        self.covered.follow(bases, &root);
        self.covered
    }

    /// Examines commands in order. After a command that changes the directory, the others may start
    /// there.
    fn commands(&mut self, commands: Vec<Vec<Name>>, mut bases: Vec<PathBuf>, depth: usize) {
        for mut names in commands {
            names.retain(|name| !name.is_written);
            if names.is_empty() {
                continue;
            }
            if names.len() > self.words {
                self.covered.add_not_covered(format!(
                    "what is named after the first {MAX_ARGUMENTS} words"
                ));
                names.truncate(self.words);
            }
            self.words -= names.len();
            self.command(&names, &bases, depth);
            if names
                .first()
                .is_some_and(|name| matches!(&*name.text, "cd" | "pushd"))
            {
                let targets = names
                    .iter()
                    .skip(1)
                    .filter(|name| !name.text.starts_with('-'));
                let targets: Vec<&Path> = targets.map(|name| Path::new(&name.text)).collect();
                let entered = bases
                    .iter()
                    .flat_map(|base| targets.iter().map(move |target| base.join(target)));
                let entered: Vec<PathBuf> =
                    entered.filter(|dir| dir.is_dir()).take(MAX_BASES).collect();
                bases.extend(entered);
                bases.truncate(MAX_BASES);
            }
        }
    }

    fn command(&mut self, names: &[Name], bases: &[PathBuf], depth: usize) {
        const MEANT: &str = ";|&()<>$`\"'\\{*?[";
        let pieces: Vec<&str> = names.iter().map(|name| name.text.as_str()).collect();
        let named: Vec<&str> = pieces
            .iter()
            .map(|piece| piece.rsplit('/').next().unwrap_or(piece))
            .collect();
        let interpreter = named.iter().any(|name| {
            let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
            INTERPRETERS.contains(&name)
        });
        let shell = named.iter().any(|name| SHELLS.contains(name));
        // The program, and the first operand, which is the script of an interpreter.
        let first = pieces
            .iter()
            .skip(1)
            .position(|piece| !piece.starts_with('-'))
            .map(|at| at + 1);
        for base in bases {
            if std::fs::canonicalize(base).is_ok_and(|base| !base.starts_with(&self.root)) {
                self.covered
                    .add_not_covered(format!("files below {}", base.display()));
                continue;
            }
            let written = written(names, base, &self.root);
            for (at, name) in names.iter().enumerate() {
                let role = match at {
                    0 => FileRole::Program,
                    _ if Some(at) != first => FileRole::Other,
                    _ if interpreter || shell => FileRole::Program,
                    _ => FileRole::FirstOperand,
                };
                if name.is_pattern {
                    if !(at == 0 || interpreter || shell) {
                        continue;
                    }
                    for path in found(base, &name.text) {
                        self.covered.path(&path, &self.root, interpreter, role);
                    }
                    continue;
                }
                if !interpreter && !shell && at > 0 && written.contains(&at) {
                    continue;
                }
                let module = at
                    .checked_sub(1)
                    .and_then(|at| pieces.get(at))
                    .is_some_and(|before| *before == "-m");
                self.word(&name.text, base, interpreter, module, role);
            }
            self.deciding(&named, &pieces, base);
        }
        for (at, name) in names.iter().enumerate() {
            if name.is_computed && (at == 0 || name.text.contains('/')) {
                let written = match name.text.as_str() {
                    "" => String::new(),
                    text => format!(" ({text})"),
                };
                self.covered.add_not_covered(format!(
                    "a file whose name is computed at run time{written}"
                ));
            }
            let text = name
                .text
                .contains(|c: char| c.is_whitespace() || shell && MEANT.contains(c));
            if text && !name.is_pattern && depth < MAX_DEPTH {
                self.commands(lines(&name.text), bases.to_vec(), depth + 1);
            }
        }
        self.unnamed_parts(&named, &pieces, bases);
    }

    /// Adds the files that one argument may name.
    fn word(&mut self, word: &str, base: &Path, interpreter: bool, module: bool, role: FileRole) {
        for name in spellings(word) {
            self.covered
                .path(&base.join(name), &self.root, interpreter, role);
            if !interpreter || module {
                continue;
            }
            for ending in ENDINGS {
                let path = PathBuf::from(format!("{}.{ending}", base.join(name).display()));
                self.covered.path(&path, &self.root, false, FileRole::Other);
            }
        }
        if interpreter && module {
            let path = PathBuf::from(format!(
                "{}.py",
                base.join(word.replace('.', "/")).display()
            ));
            self.covered.path(&path, &self.root, false, FileRole::Other);
            if let Some(package) = word.split('.').next() {
                self.covered
                    .path(&base.join(package), &self.root, true, FileRole::Other);
            }
        }
        if !word.is_empty() && !word.contains('/') {
            for dir in BINS {
                self.covered.path(
                    &base.join(dir).join(word),
                    &self.root,
                    false,
                    FileRole::Other,
                );
            }
        }
    }

    /// Adds the files that decide what a program runs, from its start directory and directories in
    /// its arguments.
    fn deciding(&mut self, named: &[&str], pieces: &[&str], base: &Path) {
        let files = MANIFESTS_BY_PROGRAM
            .iter()
            .filter(|(programs, _)| named.iter().any(|name| programs.contains(name)));
        let files: Vec<&str> = files.flat_map(|(_, files)| files.iter().copied()).collect();
        if files.is_empty() {
            return;
        }
        let given = pieces
            .iter()
            .flat_map(|piece| spellings(piece))
            .map(|name| base.join(name));
        let given: Vec<PathBuf> = given.filter(|path| path.is_dir()).take(MAX_BASES).collect();
        for dir in std::iter::once(base.to_path_buf()).chain(given) {
            for file in &files {
                self.covered
                    .path(&dir.join(file), &self.root, false, FileRole::Other);
            }
        }
    }

    /// Lists parts that run and are not named files.
    fn unnamed_parts(&mut self, named: &[&str], pieces: &[&str], bases: &[PathBuf]) {
        let deciding = MANIFESTS_BY_PROGRAM
            .iter()
            .any(|(programs, _)| named.iter().any(|name| programs.contains(name)));
        for (at, name) in named.iter().enumerate() {
            if PACKAGE_RUNNERS.contains(name) {
                let package = pieces[at + 1..]
                    .iter()
                    .find(|word| !word.starts_with('-'))
                    .unwrap_or(&"a package");
                self.covered
                    .add_not_covered(format!("{package}, wherever {name} finds it"));
            }
            if BUILD_TOOLS.contains(name) {
                self.covered
                    .add_not_covered(format!("the sources that {name} builds"));
            }
            let next = pieces.get(at + 1).copied().unwrap_or_default();
            let (option, value) = pieces[at].split_once('=').unwrap_or((pieces[at], next));
            let workspace = deciding && matches!(option, "-w" | "--workspace" | "--filter");
            if workspace && !bases.iter().any(|base| base.join(value).is_dir()) {
                self.covered
                    .add_not_covered(format!("the workspace {value}, wherever it is"));
            }
        }
    }
}

/// Returns the indices of the arguments that name files which the command only writes, according to
/// the command analysis. Empty if an argument is not known before the command runs.
fn written(names: &[Name], base: &Path, root: &Path) -> Vec<usize> {
    if names.len() < 2 || names.iter().any(|name| name.is_pattern || name.is_computed) {
        return Vec::new();
    }
    let quoted: Vec<String> = names
        .iter()
        .map(|name| format!("'{}'", name.text.replace('\'', "'\\''")))
        .collect();
    let context = PermissionContext {
        cwd: base.to_path_buf(),
        root: root.to_path_buf(),
        ..PermissionContext::default()
    };
    let line = analyze(&quoted.join(" "), &context);
    let paths_of = |permission: &str| -> Vec<PathBuf> {
        let touches = line
            .units
            .iter()
            .flat_map(|unit| &unit.path_uses)
            .filter(|path_use| path_use.permission == permission);
        touches
            .flat_map(|path_use| &path_use.patterns)
            .map(|path| base::worktree::normal(&root.join(path)))
            .collect()
    };
    let edited = paths_of("edit");
    let read = paths_of("read");
    let is_written = |index: &usize| {
        let path = names
            .get(*index)
            .map(|name| base::worktree::normal(&base.join(&name.text)));
        path.is_some_and(|path| edited.contains(&path) && !read.contains(&path))
    };
    (1..names.len()).filter(is_written).collect()
}

/// Returns the files below a directory that match a pattern.
fn found(base: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut paths = vec![if pattern.starts_with('/') {
        PathBuf::from("/")
    } else {
        base.to_path_buf()
    }];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        if !part.contains(['*', '?']) {
            paths.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let below = paths
            .iter()
            .filter_map(|path| std::fs::read_dir(path).ok())
            .flatten()
            .flatten();
        let fits = below.filter(|entry| matches(part, &entry.file_name().to_string_lossy()));
        paths = fits.map(|entry| entry.path()).take(MAX_FILES).collect();
        paths.sort();
    }
    paths
}

/// Returns the paths that an argument may name: itself, and values attached to an option.
fn spellings(word: &str) -> Vec<&str> {
    let mut found = vec![word];
    found.extend(word.strip_prefix("file://"));
    found.extend(word.strip_prefix('@'));
    found.extend(word.split_once('=').map(|(_, value)| value));
    if word.starts_with('-') && !word.starts_with("--") {
        found.extend(word.get(2..));
    }
    let lists: Vec<&str> = found
        .iter()
        .flat_map(|text| text.split([':', ',']))
        .collect();
    found.extend(lists);
    found.retain(|text| !text.is_empty());
    found.sort_unstable();
    found.dedup();
    found
}

impl ScriptInputs {
    fn add_not_covered(&mut self, text: String) {
        if !self.not_covered.contains(&text) {
            self.not_covered.push(text);
        }
    }

    /// Adds a file or, with `directories`, the files of a directory. A file outside the project is
    /// added only if the command runs it and it is not in a system directory: data there, such as
    /// a database or a log that a server writes, is not the project's.
    fn path(&mut self, path: &Path, root: &Path, directories: bool, role: FileRole) {
        let Ok(real) = std::fs::canonicalize(path) else {
            return;
        };
        let shown = |path: &Path| {
            path.strip_prefix(root)
                .unwrap_or(path)
                .display()
                .to_string()
        };
        if !real.starts_with(root) {
            let system = SYSTEM.iter().any(|dir| real.starts_with(dir));
            let runs = match role {
                FileRole::Program => true,
                FileRole::FirstOperand => is_code(&real),
                FileRole::Other => false,
            };
            if runs && !system && real.is_file() {
                self.file(&real, root);
            } else if base::worktree::normal(path).starts_with(root) {
                self.add_not_covered(format!("{}, which leads out of the project", shown(path)));
            } else if !system && real.is_file() {
                self.add_not_covered(format!("{}, outside of the project", real.display()));
            }
        } else if real.is_file() {
            self.file(&real, root);
        } else if directories && real.is_dir() {
            let mut files = Vec::new();
            if real == root || !gather(&real, &mut files) {
                let name = if real == root {
                    "the project's directory".to_owned()
                } else {
                    shown(&real)
                };
                self.add_not_covered(format!("what is loaded from {name}"));
                for entry in ["package.json", "index.js", "__main__.py", "main.go"] {
                    self.path(&real.join(entry), root, false, FileRole::Other);
                }
                return;
            }
            for file in files {
                self.file(&file, root);
            }
        }
    }

    /// Adds the code that the files so far name, and the code that it names in turn.
    fn follow(&mut self, bases: &[PathBuf], root: &Path) {
        let mut at = 0;
        while let Some(file) = self.files.get(at).cloned() {
            if at >= MAX_SEARCHED_FILES {
                self.add_not_covered("what these files name in turn".to_owned());
                return;
            }
            at += 1;
            let Some(text) = start_of(&file) else {
                continue;
            };
            let inside = |c: char| c.is_alphanumeric() || "_./-@+".contains(c);
            let named =
                |word: &&str| word.contains(['.', '/']) && word.contains(char::is_alphanumeric);
            let words = text
                .split(|c| !inside(c))
                .filter(|word| named(word) && word.len() <= 256);
            let words: std::collections::BTreeSet<&str> = words.take(MAX_SEARCHED_NAMES).collect();
            for base in file
                .parent()
                .into_iter()
                .chain(bases.iter().map(PathBuf::as_path))
            {
                for word in &words {
                    let path = base.join(word);
                    self.code(&path, root);
                    // A module may be named without its extension.
                    if path.extension().is_none() {
                        for ending in ["js", "mjs", "cjs", "ts"] {
                            self.code(&path.with_extension(ending), root);
                            self.code(&path.join("index").with_extension(ending), root);
                        }
                    }
                }
            }
        }
    }

    fn code(&mut self, path: &Path, root: &Path) {
        let Ok(real) = std::fs::canonicalize(path) else {
            return;
        };
        let code = real.extension().is_some_and(|ending| {
            CODE_EXTENSIONS
                .iter()
                .any(|extension| ending.eq_ignore_ascii_case(extension))
        });
        if real.starts_with(root) && real.is_file() && (code || is_executable(&real)) {
            self.file(&real, root);
        }
    }

    fn file(&mut self, path: &Path, root: &Path) {
        if self.files.iter().any(|file| file == path) {
            return;
        }
        let name = path
            .strip_prefix(root)
            .unwrap_or(path)
            .display()
            .to_string();
        match digest(path) {
            Some(digest) => {
                let _ = writeln!(self.content, "{name} {digest}");
                self.files.push(path.to_path_buf());
            }
            None => self.add_not_covered(format!("{name}, which is too large or cannot be read")),
        }
    }
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|data| data.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(_: &Path) -> bool {
    false
}

/// Returns whether a file is run or decides what a program runs.
pub(crate) fn is_code(path: &Path) -> bool {
    let ending = path.extension().is_some_and(|ending| {
        CODE_EXTENSIONS
            .iter()
            .any(|extension| ending.eq_ignore_ascii_case(extension))
    });
    let deciding = MANIFESTS_BY_PROGRAM
        .iter()
        .any(|(_, files)| files.iter().any(|file| path.ends_with(file)));
    ending || deciding || is_executable(path)
}

/// Returns the beginning of a file if it is text.
fn start_of(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    base::file::open_regular(path)
        .ok()?
        .take(MAX_SEARCHED_BYTES)
        .read_to_end(&mut bytes)
        .ok()?;
    (!bytes.contains(&0)).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// Collects all files below a directory, in order, without those of version control, caches and
/// dependencies. Returns `false` if there are too many or an entry is neither file nor directory.
fn gather(dir: &Path, files: &mut Vec<PathBuf>) -> bool {
    const LEFT_OUT: [&str; 4] = [".git", "node_modules", "target", "__pycache__"];
    let Ok(entries) = std::fs::read_dir(dir) else {
        return false;
    };
    let mut entries: Vec<std::fs::DirEntry> = entries.flatten().take(MAX_FILES + 1).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let Ok(kind) = entry.file_type() else {
            return false;
        };
        if kind.is_dir() {
            let left_out = LEFT_OUT.iter().any(|name| entry.file_name() == *name);
            if !left_out && !gather(&entry.path(), files) {
                return false;
            }
        } else if kind.is_file() {
            files.push(entry.path());
        } else {
            return false;
        }
        if files.len() > MAX_FILES {
            return false;
        }
    }
    true
}

/// Returns the metadata of a file, of which the time of the last change of its inode cannot be
/// restored.
pub(crate) fn metadata(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(path).ok()?;
    let times = (
        file.mtime(),
        file.mtime_nsec(),
        file.ctime(),
        file.ctime_nsec(),
    );
    Some(format!("{:?}", (file.dev(), file.ino(), times, file.len())))
}

/// Returns the digest of a file, unless it is large or cannot be read.
pub(crate) fn digest(path: &Path) -> Option<String> {
    let mut file = base::file::open_regular(path).ok()?.take(MAX_BYTES + 1);
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let mut buffer = vec![0; 64 << 10];
    let mut read = 0;
    loop {
        let count = file.read(&mut buffer).ok()?;
        if count == 0 {
            break;
        }
        read += count as u64;
        context.update(buffer.get(..count)?);
    }
    (read <= MAX_BYTES).then(|| base::text::hex(context.finish().as_ref()))
}

/// Returns the text of a small file, with its digest.
pub(crate) fn text_with_digest(path: &Path) -> Option<(String, String)> {
    let text = start_of(path)?;
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    Some((text, base::text::hex(digest.as_ref())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn named_files_are_covered_and_others_listed() {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        let files = [
            "run.sh",
            "package.json",
            "Makefile",
            "tools/server.js",
            "tools/lib/a.js",
            "pkg/__main__.py",
            "pkg/deep/b.py",
            "sub/run.sh",
            "conf.js",
            "e.js",
            "e.rb",
            "perl/Foo.pm",
            "build/Main.class",
            "args",
            "sub/Makefile",
            "sub/package.json",
            "node_modules/.bin/foo",
            "index.js",
            "big/x",
        ];
        for file in files {
            std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            std::fs::write(root.join(file), file).unwrap();
        }
        std::fs::write(root.join("big/x"), vec![0; (MAX_BYTES + 1) as usize]).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", root.join("out")).unwrap();
        // Arguments, start directory, covered files, text of the parts that are not covered.
        type Row = (
            &'static [&'static str],
            &'static str,
            &'static [&'static str],
            &'static str,
        );
        std::fs::write(dir.path().with_extension("sh"), "evil").unwrap();
        let table: [Row; 48] = [
            (&["./run.sh"], "", &["run.sh"], ""),
            (&["sh", "run.sh"], "", &["run.sh"], "sh, looked up on PATH"),
            (
                &["/bin/sh", "-c", "cd x && ./run.sh >out.txt"],
                "",
                &["run.sh"],
                "",
            ),
            (&["/bin/sh", "run.sh"], "sub", &["sub/run.sh"], ""),
            (&["/usr/bin/npm", "run", "x"], "", &["package.json"], ""),
            (
                &["npx", "-y", "thing@1"],
                "",
                &["package.json"],
                "thing@1, wherever npx finds it",
            ),
            (&["/usr/bin/make", "serve"], "", &["Makefile"], ""),
            (&["/usr/bin/env", "A=b", "make"], "", &["Makefile"], ""),
            (
                &["/usr/bin/node", "tools"],
                "",
                &["tools/lib/a.js", "tools/server.js"],
                "",
            ),
            (
                &["/usr/bin/node", "tools/server"],
                "",
                &["tools/server.js"],
                "",
            ),
            (
                &["/usr/bin/node", "."],
                "",
                &["index.js", "package.json"],
                "what is loaded from the project's directory",
            ),
            (
                &["/usr/bin/python3", "-m", "pkg.deep"],
                "",
                &["pkg/__main__.py", "pkg/deep/b.py"],
                "",
            ),
            (&["/bin/x", "--config=./conf.js"], "", &["conf.js"], ""),
            (&["/bin/x", "-r./conf.js"], "", &["conf.js"], ""),
            (
                &["/bin/x", "file://conf.js,run.sh"],
                "",
                &["conf.js", "run.sh"],
                "",
            ),
            (&["/bin/x", "tools"], "", &[], ""),
            (
                &["/bin/x", "big/x"],
                "",
                &[],
                "big/x, which is too large or cannot be read",
            ),
            (
                &["/bin/x", "out"],
                "",
                &[],
                "out, which leads out of the project",
            ),
            (&["/bin/x", "run.sh"], "..", &[], "files below"),
            (&["cargo", "run"], "", &[], "the sources that cargo builds"),
            (
                &["/usr/bin/make", "-C", "sub", "serve"],
                "",
                &["Makefile", "sub/Makefile"],
                "",
            ),
            (
                &["/usr/bin/make", "-Csub", "serve"],
                "",
                &["Makefile", "sub/Makefile"],
                "",
            ),
            (
                &["/usr/bin/npm", "--prefix", "sub", "start"],
                "",
                &["package.json", "sub/package.json"],
                "",
            ),
            (
                &["/usr/bin/npm", "run", "x", "-w", "sub"],
                "",
                &["package.json", "sub/package.json"],
                "",
            ),
            (
                &["/usr/bin/npm", "run", "x", "-w", "lib"],
                "",
                &["package.json"],
                "the workspace lib",
            ),
            (
                &["/bin/sh", "-c", "cd sub && ./run.sh"],
                "",
                &["run.sh", "sub/run.sh"],
                "",
            ),
            (&["/bin/sh", "-c", "$PWD/run.sh"], "", &["run.sh"], ""),
            (&["/bin/sh", "-c", "./run.sh;true"], "", &["run.sh"], ""),
            (&["/bin/sh", "-c", "sh<run.sh"], "", &["run.sh"], ""),
            (&["/bin/sh", "-c", "sh ru\"n.sh\""], "", &["run.sh"], ""),
            (&["/bin/sh", "-c", "sh ru\\n.sh"], "", &["run.sh"], ""),
            (&["/bin/sh", "-c", "sh ./ru?.sh"], "", &["run.sh"], ""),
            (&["/bin/sh", "-c", "sh ./[qr]un.sh"], "", &["run.sh"], ""),
            (&["/bin/sh", "-c", "sh {run,x}.sh"], "", &["run.sh"], ""),
            (
                &["/bin/sh", "-c", "sh -c 'sh sub/run.sh'"],
                "",
                &["sub/run.sh"],
                "",
            ),
            (&["/bin/sh", "-c", "x=$(./run.sh)"], "", &["run.sh"], ""),
            (
                &["/bin/sh", "-c", "$X/run.sh"],
                "",
                &[],
                "computed at run time (/run.sh)",
            ),
            (
                &["/usr/bin/node", "-r./e", "x.js"],
                "",
                &["e.js", "e.rb"],
                "",
            ),
            (
                &["/usr/bin/ruby", "-r./e", "x.rb"],
                "",
                &["e.js", "e.rb"],
                "",
            ),
            (
                &["/usr/bin/perl", "-Iperl", "-MFoo"],
                "",
                &["perl/Foo.pm"],
                "",
            ),
            (
                &["/usr/bin/java", "-cp", "build", "Main"],
                "",
                &["build/Main.class"],
                "",
            ),
            (&["/usr/bin/java", "@args"], "", &["args"], ""),
            // Files that are only written are not covered.
            (
                &["/bin/sh", "-c", "date >> e.js; date &> e.rb"],
                "",
                &[],
                "",
            ),
            (&["/bin/sh", "-c", "date | tee -a e.js"], "", &[], ""),
            (&["/usr/bin/tee", "-a", "./args"], "", &[], ""),
            (
                &["/bin/sh", "-c", "date > run.sh; sh run.sh"],
                "",
                &["run.sh"],
                "",
            ),
            (
                &["/bin/sh", "-c", "date > $(./run.sh)"],
                "",
                &["run.sh"],
                "",
            ),
            (
                &["foo"],
                "",
                &["node_modules/.bin/foo"],
                "foo, looked up on PATH",
            ),
        ];
        for (words, base, wanted, expected) in table {
            let covered = of_command(words, &[root.join(base)], &root);
            let mut found: Vec<String> = covered
                .files
                .iter()
                .map(|file| file.strip_prefix(&root).unwrap().display().to_string())
                .collect();
            found.sort();
            assert_eq!(found, wanted, "{words:?}");
            let not_covered = covered.not_covered.join("; ");
            assert!(
                not_covered.contains(expected) && (expected.is_empty() == not_covered.is_empty()),
                "{words:?}: {not_covered}"
            );
        }
        let outside = dir.path().with_extension("sh");
        let sibling = format!("../{}", outside.file_name().unwrap().to_string_lossy());
        for words in [
            &[&*sibling][..],
            &[&*outside.to_string_lossy()],
            &["/bin/sh", &sibling],
        ] {
            let covered = of_command(words, std::slice::from_ref(&root), &root);
            assert_eq!(
                covered.files,
                [std::fs::canonicalize(&outside).unwrap()],
                "{words:?}"
            );
        }
        let not_covered = of_command(
            &["/bin/x", "-c", "y", &sibling],
            std::slice::from_ref(&root),
            &root,
        )
        .not_covered
        .join("");
        assert!(
            not_covered.ends_with("outside of the project"),
            "{not_covered}"
        );
        // Data outside the project may change: of a program that is not an interpreter, only code is
        // covered.
        let data = dir.path().with_extension("db");
        std::fs::write(&data, "1").unwrap();
        let data_name = data.to_string_lossy().into_owned();
        let touch = format!("touch {data_name}; sh run.sh");
        for words in [&["/bin/x", &*data_name][..], &["/bin/sh", "-c", &touch]] {
            let of_words = || of_command(words, std::slice::from_ref(&root), &root).content;
            let before = of_words();
            std::fs::write(&data, before.len().to_string()).unwrap();
            assert_eq!(of_words(), before, "{words:?}");
            std::fs::remove_file(&data).unwrap();
            assert_eq!(of_words(), before, "{words:?}");
            std::fs::write(&data, "1").unwrap();
        }
        std::fs::remove_file(data).unwrap();
        // The script of an interpreter is covered, whatever its ending.
        for program in ["/usr/bin/env", "/usr/bin/Rscript"] {
            let words = [program, &*outside.to_string_lossy()];
            let covered = of_command(&words, std::slice::from_ref(&root), &root);
            assert_eq!(covered.files.len(), 1, "{program}: {covered:?}");
        }
        std::fs::remove_file(outside).unwrap();
        let line = of_line("cd sub; ./run.sh", std::slice::from_ref(&root), &root);
        assert!(line.files.contains(&root.join("sub/run.sh")), "{line:?}");
        let many: Vec<String> = (0..300)
            .map(|n| format!("w{n}"))
            .chain(["run.sh".to_owned()])
            .collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(
            of_command(&many, std::slice::from_ref(&root), &root)
                .not_covered
                .iter()
                .any(|text| text.contains("first 256 words"))
        );
        let before = of_command(&["sh", "run.sh"], std::slice::from_ref(&root), &root).content;
        std::fs::write(root.join("run.sh"), "changed").unwrap();
        assert_ne!(
            of_command(&["sh", "run.sh"], std::slice::from_ref(&root), &root).content,
            before
        );
    }
}
