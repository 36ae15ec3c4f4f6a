//! The project's files that a command line runs, as far as it names them. A consent holds for what is
//! in them; what else would run is told, so that nobody takes it for covered.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Words that are looked at, files and bytes of a directory, bytes of one file.
const WORDS: usize = 256;
const FILES: usize = 500;
const BYTES: u64 = 32 << 20;

/// Files whose own words are looked at, the bytes of one, and how many of them.
const FOLLOWED: usize = 100;
const FOLLOWED_BYTES: u64 = 64 << 10;
const FOLLOWED_WORDS: usize = 500;

/// How files end that are run; others are data.
const CODE: [&str; 18] = [
    "sh", "bash", "zsh", "js", "mjs", "cjs", "jsx", "ts", "mts", "cts", "tsx", "py", "rb", "pl", "lua", "php", "mk",
    "mak",
];

/// Programs, and the files of the directory they start in that say what they run.
const DECIDING: [(&[&str], &[&str]); 11] = [
    (&["npm", "npx", "pnpm", "pnpx", "yarn", "bun", "bunx"], &["package.json", ".npmrc", ".yarnrc.yml"]),
    (&["make", "gmake"], &["GNUmakefile", "makefile", "Makefile"]),
    (&["just"], &["justfile", "Justfile", ".justfile"]),
    (&["task"], &["Taskfile.yml", "Taskfile.yaml"]),
    (&["cargo"], &["Cargo.toml", "build.rs", ".cargo/config.toml"]),
    (&["deno"], &["deno.json", "deno.jsonc"]),
    (&["uv", "poetry", "pipenv", "hatch", "pdm"], &["pyproject.toml", "Pipfile"]),
    (
        &["docker", "docker-compose", "podman"],
        &["docker-compose.yml", "docker-compose.yaml", "compose.yml", "compose.yaml", "Dockerfile"],
    ),
    (&["rake", "bundle"], &["Rakefile", "Gemfile"]),
    (&["composer"], &["composer.json"]),
    (&["mise"], &["mise.toml", ".mise.toml"]),
];

/// Programs that run what the next word names, from wherever they find it.
const FETCHING: [&str; 8] = ["npx", "pnpx", "bunx", "uvx", "pipx", "dlx", "tsx", "dotenvx"];

/// Programs that build what they run.
const BUILDING: [&str; 5] = ["cargo", "go", "gradle", "mvn", "dotnet"];

/// Programs that run a directory or a module.
const INTERPRETERS: [&str; 8] = ["python", "pypy", "node", "deno", "bun", "ts-node", "ruby", "go"];

/// Files of a project, and what would run besides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Covered {
    pub(crate) files: Vec<PathBuf>,
    /// Stands for what is in them.
    pub(crate) content: String,
    /// For people.
    pub(crate) besides: Vec<String>,
}

/// The files that a command line of these words runs. `bases` are the directories it may start in.
pub(crate) fn covered(words: &[&str], bases: &[PathBuf], root: &Path) -> Covered {
    let mut covered = Covered::default();
    let root = std::fs::canonicalize(root).unwrap_or_else(|_| root.to_path_buf());
    let pieces: Vec<&str> = words.iter().flat_map(|word| pieces(word)).take(WORDS + 1).collect();
    if pieces.len() > WORDS {
        covered.besides(format!("what is named after the first {WORDS} words"));
    }
    if let Some(program) = words.first().filter(|program| !program.contains('/')) {
        covered.besides(format!("{program}, wherever it is found"));
    }
    let named: Vec<&str> = pieces.iter().map(|piece| piece.rsplit('/').next().unwrap_or(piece)).collect();
    let interpreter = named.iter().any(|name| {
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        INTERPRETERS.contains(&name)
    });
    for base in bases {
        if std::fs::canonicalize(base).is_ok_and(|base| !base.starts_with(&root)) {
            covered.besides(format!("files below {}", base.display()));
            continue;
        }
        for (at, piece) in pieces.iter().take(WORDS).enumerate() {
            for name in spellings(piece) {
                covered.path(&base.join(name), &root, interpreter);
            }
            if interpreter {
                let module = at.checked_sub(1).and_then(|at| pieces.get(at)).is_some_and(|before| *before == "-m");
                let endings = if module { &["py"][..] } else { &["js", "mjs", "cjs", "ts"] };
                let path = base.join(if module { piece.replace('.', "/") } else { (*piece).to_owned() });
                for ending in endings {
                    covered.path(&PathBuf::from(format!("{}.{ending}", path.display())), &root, false);
                }
                if module && let Some(package) = piece.split('.').next() {
                    covered.path(&base.join(package), &root, true);
                }
            }
        }
        for (_, files) in DECIDING.iter().filter(|(programs, _)| named.iter().any(|name| programs.contains(name))) {
            for file in *files {
                covered.path(&base.join(file), &root, false);
            }
        }
    }
    covered.follow(bases, &root);
    for (at, name) in named.iter().enumerate() {
        if FETCHING.contains(name) {
            let package = pieces[at + 1..].iter().find(|word| !word.starts_with('-')).unwrap_or(&"a package");
            covered.besides(format!("{package}, wherever {name} finds it"));
        }
        if BUILDING.contains(name) {
            covered.besides(format!("the sources that {name} builds"));
        }
    }
    covered
}

/// A word, or what a text for a shell is made of.
fn pieces(word: &str) -> Vec<&str> {
    let ends = |c: char| c.is_whitespace() || matches!(c, ';' | '|' | '&' | '(' | ')' | '<' | '>' | '"' | '\'' | '`');
    if !word.contains(char::is_whitespace) {
        return vec![word];
    }
    word.split(ends).filter(|piece| !piece.is_empty()).collect()
}

/// The paths that a word may name: itself, and what is joined to an option.
fn spellings(word: &str) -> Vec<&str> {
    let mut found = vec![word];
    found.extend(word.strip_prefix("file://"));
    found.extend(word.split_once('=').map(|(_, value)| value));
    if word.starts_with('-') && !word.starts_with("--") {
        found.extend(word.get(2..));
    }
    let lists: Vec<&str> = found.iter().flat_map(|text| text.split([':', ','])).collect();
    found.extend(lists);
    found.retain(|text| !text.is_empty());
    found.sort_unstable();
    found.dedup();
    found
}

impl Covered {
    fn besides(&mut self, what: String) {
        if !self.besides.contains(&what) {
            self.besides.push(what);
        }
    }

    /// Takes in a file, or, where a program runs directories, what is in one.
    fn path(&mut self, path: &Path, root: &Path, directories: bool) {
        let Ok(real) = std::fs::canonicalize(path) else { return };
        let shown = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
        if !real.starts_with(root) {
            if crate::worktree::normal(path).starts_with(root) {
                self.besides(format!("{}, which leads out of the project", shown(path)));
            }
        } else if real.is_file() {
            self.file(&real, root);
        } else if directories && real.is_dir() {
            let mut files = Vec::new();
            if real == root || !gather(&real, &mut files) {
                let name = if real == root { "the project's directory".to_owned() } else { shown(&real) };
                self.besides(format!("what is loaded from {name}"));
                for entry in ["package.json", "index.js", "__main__.py", "main.go"] {
                    self.path(&real.join(entry), root, false);
                }
                return;
            }
            for file in files {
                self.file(&file, root);
            }
        }
    }

    /// Takes in the code that the files so far name, and what that names in turn.
    fn follow(&mut self, bases: &[PathBuf], root: &Path) {
        let mut at = 0;
        while let Some(file) = self.files.get(at).cloned() {
            if at >= FOLLOWED {
                self.besides("what these files name in turn".to_owned());
                return;
            }
            at += 1;
            let Some(text) = start_of(&file) else { continue };
            let inside = |c: char| c.is_alphanumeric() || "_./-@+".contains(c);
            let named = |word: &&str| word.contains(['.', '/']) && word.contains(char::is_alphanumeric);
            let words = text.split(|c| !inside(c)).filter(|word| named(word) && word.len() <= 256);
            let words: std::collections::BTreeSet<&str> = words.take(FOLLOWED_WORDS).collect();
            for base in file.parent().into_iter().chain(bases.iter().map(PathBuf::as_path)) {
                for word in &words {
                    let path = base.join(word);
                    self.code(&path, root);
                    // A module is named without its ending.
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
        let Ok(real) = std::fs::canonicalize(path) else { return };
        let code = real.extension().is_some_and(|ending| CODE.iter().any(|one| ending.eq_ignore_ascii_case(one)));
        if real.starts_with(root) && real.is_file() && (code || is_executable(&real)) {
            self.file(&real, root);
        }
    }

    fn file(&mut self, path: &Path, root: &Path) {
        if self.files.iter().any(|file| file == path) {
            return;
        }
        let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
        match digest(path) {
            Some(digest) => {
                let _ = writeln!(self.content, "{name} {digest}");
                self.files.push(path.to_path_buf());
            }
            None => self.besides(format!("{name}, which is too large or cannot be read")),
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

/// How a file begins, if it is text.
fn start_of(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(FOLLOWED_BYTES).read_to_end(&mut bytes).ok()?;
    (!bytes.contains(&0)).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// All files below a directory, in order, without those of version control and of dependencies. False
/// where there are too many.
fn gather(dir: &Path, files: &mut Vec<PathBuf>) -> bool {
    const LEFT_OUT: [&str; 4] = [".git", "node_modules", "target", "__pycache__"];
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    let mut entries: Vec<std::fs::DirEntry> = entries.flatten().take(FILES + 1).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let Ok(kind) = entry.file_type() else { return false };
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
        if files.len() > FILES {
            return false;
        }
    }
    true
}

fn digest(path: &Path) -> Option<String> {
    let mut file = std::fs::File::open(path).ok()?.take(BYTES + 1);
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
    (read <= BYTES).then(|| hex(context.finish().as_ref()))
}

/// Bytes as text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_is_covered_as_far_as_it_is_named() {
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
            "index.js",
            "big/x",
            "chain.sh",
            "lib.sh",
            "out.log",
            "npm/package.json",
        ];
        for file in files {
            std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            std::fs::write(root.join(file), file).unwrap();
        }
        std::fs::write(root.join("chain.sh"), ". ./lib.sh\nnode tools/lib/a").unwrap();
        std::fs::write(root.join("lib.sh"), "python3 pkg/deep/b.py /etc/hostname >out.log; ./chain.sh").unwrap();
        std::fs::write(root.join("npm/package.json"), r#"{"scripts": {"prestart": "node ../tools/server.js"}}"#)
            .unwrap();
        std::fs::write(root.join("big/x"), vec![0; (BYTES + 1) as usize]).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", root.join("out")).unwrap();
        // The words, where they start, the files, what is told besides.
        type Row = (&'static [&'static str], &'static str, &'static [&'static str], &'static str);
        let table: [Row; 22] = [
            (&["./chain.sh"], "", &["chain.sh", "lib.sh", "pkg/deep/b.py", "tools/lib/a.js"], ""),
            (&["/usr/bin/npm", "start"], "npm", &["npm/package.json", "tools/server.js"], ""),
            (&["./run.sh"], "", &["run.sh"], ""),
            (&["sh", "run.sh"], "", &["run.sh"], "sh, wherever it is found"),
            (&["/bin/sh", "-c", "cd x && ./run.sh >out.txt"], "", &["run.sh"], ""),
            (&["/bin/sh", "run.sh"], "sub", &["sub/run.sh"], ""),
            (&["/usr/bin/npm", "run", "x"], "", &["package.json"], ""),
            (&["npx", "-y", "thing@1"], "", &["package.json"], "thing@1, wherever npx finds it"),
            (&["/usr/bin/make", "serve"], "", &["Makefile"], ""),
            (&["/usr/bin/env", "A=b", "make"], "", &["Makefile"], ""),
            (&["/usr/bin/node", "tools"], "", &["tools/lib/a.js", "tools/server.js"], ""),
            (&["/usr/bin/node", "tools/server"], "", &["tools/server.js"], ""),
            (&["/usr/bin/node", "."], "", &["index.js", "package.json"], "what is loaded from the project's directory"),
            (&["/usr/bin/python3", "-m", "pkg.deep"], "", &["pkg/__main__.py", "pkg/deep/b.py"], ""),
            (&["/bin/x", "--config=./conf.js"], "", &["conf.js"], ""),
            (&["/bin/x", "-r./conf.js"], "", &["conf.js"], ""),
            (&["/bin/x", "file://conf.js,run.sh"], "", &["conf.js", "run.sh"], ""),
            (&["/bin/x", "tools"], "", &[], ""),
            (&["/bin/x", "big/x"], "", &[], "big/x, which is too large or cannot be read"),
            (&["/bin/x", "out"], "", &[], "out, which leads out of the project"),
            (&["/bin/x", "run.sh"], "..", &[], "files below"),
            (&["cargo", "run"], "", &[], "the sources that cargo builds"),
        ];
        for (words, base, wanted, besides) in table {
            let covered = covered(words, &[root.join(base)], &root);
            let mut found: Vec<String> =
                covered.files.iter().map(|file| file.strip_prefix(&root).unwrap().display().to_string()).collect();
            found.sort();
            assert_eq!(found, wanted, "{words:?}");
            let told = covered.besides.join("; ");
            assert!(told.contains(besides) && (besides.is_empty() == told.is_empty()), "{words:?}: {told}");
        }
        let many: Vec<String> = (0..300).map(|n| format!("w{n}")).chain(["run.sh".to_owned()]).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(
            covered(&many, std::slice::from_ref(&root), &root)
                .besides
                .iter()
                .any(|told| told.contains("first 256 words"))
        );
        let before = covered(&["sh", "run.sh"], std::slice::from_ref(&root), &root).content;
        std::fs::write(root.join("run.sh"), "changed").unwrap();
        assert_ne!(covered(&["sh", "run.sh"], std::slice::from_ref(&root), &root).content, before);
    }
}
