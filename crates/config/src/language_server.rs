//! Language servers: the ones that are known, which of them a file belongs to, and what the settings make of both.
//!
//! To add one: a line in `KNOWN`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::file::{LanguageServer, OnOrNamed};
use base::environment::Environment;

/// A language server that may be asked about files.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerEntry {
    /// OpenCode's name of a known one, else the key in the settings.
    pub name: String,
    /// The program and its arguments; never empty.
    pub command: Vec<String>,
    /// The endings of names it is for, with their dot, and whole names without one.
    pub extensions: Vec<String>,
    /// Set for it, over what commands get.
    pub environment: Vec<(String, String)>,
    /// Sent to it at the start.
    pub initialization: Option<Value>,
    /// What is known of it; none for one of the user's own.
    known: Option<&'static KnownServer>,
    /// The program is looked for in the project as well.
    usual: bool,
}

#[derive(Debug, PartialEq)]
struct KnownServer {
    name: &'static str,
    /// Words that are separated by single spaces.
    command: &'static str,
    extensions: &'static str,
    /// Where a project of its kind begins: the nearest folder upward that has one of these. Groups are separated by
    /// `|`; a later one counts where none of an earlier one lies anywhere. `a:b` is a file that contains a text,
    /// `*.x` any file with that ending.
    roots: &'static str,
    /// Without one of `roots` the project does not mean it.
    required: bool,
    /// The project does not mean it where one of these lies upward.
    unless: &'static str,
    /// The usual way to install it.
    install: &'static str,
}

const LOCKS: &str =
    "package-lock.json bun.lockb bun.lock pnpm-lock.yaml yarn.lock | tsconfig.json jsconfig.json package.json";
const SCRIPTS: &str = ".ts .tsx .js .jsx .mjs .cjs .mts .cts";
const PYTHON: &str = "pyproject.toml setup.py setup.cfg requirements.txt Pipfile pyrightconfig.json";
const ESLINT: &str = "eslint.config.js eslint.config.mjs eslint.config.cjs eslint.config.ts .eslintrc .eslintrc.js \
                      .eslintrc.cjs .eslintrc.json .eslintrc.yml .eslintrc.yaml";

const fn known(
    name: &'static str,
    command: &'static str,
    extensions: &'static str,
    roots: &'static str,
    install: &'static str,
) -> KnownServer {
    KnownServer { name, command, extensions, roots, required: false, unless: "", install }
}

const fn required(known: KnownServer) -> KnownServer {
    KnownServer { required: true, ..known }
}

/// Those that need no command in the settings, with OpenCode's names. In this order they are asked.
#[rustfmt::skip]
const KNOWN: &[KnownServer] = &[
    required(known("deno", "deno lsp", ".ts .tsx .js .jsx .mjs", "deno.json deno.jsonc", "https://deno.com")),
    KnownServer { unless: "deno.json deno.jsonc", ..known("typescript", "typescript-language-server --stdio", SCRIPTS, LOCKS, "npm install -g typescript-language-server typescript") },
    known("vue", "vue-language-server --stdio", ".vue", LOCKS, "npm install -g @vue/language-server typescript"),
    required(known("eslint", "vscode-eslint-language-server --stdio", ".ts .tsx .js .jsx .mjs .cjs .mts .cts .vue", ESLINT, "npm install -g vscode-langservers-extracted")),
    required(known("oxlint", "oxlint --lsp", ".ts .tsx .js .jsx .mjs .cjs .mts .cts .vue .astro .svelte", ".oxlintrc.json oxlint.config.ts", "npm install -D oxlint")),
    required(known("biome", "biome lsp-proxy", ".ts .tsx .js .jsx .mjs .cjs .mts .cts .json .jsonc .vue .astro .svelte .css .graphql .gql .html", "biome.json biome.jsonc", "npm install -D @biomejs/biome")),
    known("gopls", "gopls", ".go", "go.work | go.mod go.sum", "go install golang.org/x/tools/gopls@latest"),
    known("ruby-lsp", "ruby-lsp", ".rb .rake .gemspec .ru", "Gemfile", "gem install ruby-lsp"),
    known("ty", "ty server", ".py .pyi", "ty.toml | pyproject.toml setup.py setup.cfg requirements.txt Pipfile", "pip install ty"),
    known("pyright", "pyright-langserver --stdio", ".py .pyi", PYTHON, "npm install -g pyright"),
    known("elixir-ls", "elixir-ls", ".ex .exs", "mix.exs mix.lock", "https://github.com/elixir-lsp/elixir-ls"),
    known("zls", "zls", ".zig .zon", "build.zig", "https://github.com/zigtools/zls"),
    known("csharp", "csharp-ls", ".cs .csx", "*.slnx *.sln | *.csproj global.json", "dotnet tool install --global csharp-ls"),
    known("fsharp", "fsautocomplete", ".fs .fsi .fsx .fsscript", "*.slnx *.sln | *.fsproj global.json", "dotnet tool install --global fsautocomplete"),
    known("sourcekit-lsp", "sourcekit-lsp", ".swift .objc .objcpp", "Package.swift *.xcodeproj *.xcworkspace", "it comes with Swift: https://swift.org"),
    known("rust", "rust-analyzer", ".rs", "Cargo.toml:[workspace] | Cargo.toml", "rustup component add rust-analyzer"),
    known("clangd", "clangd --background-index", ".c .cpp .cc .cxx .c++ .h .hpp .hh .hxx .h++", "compile_commands.json compile_flags.txt .clangd | CMakeLists.txt Makefile meson.build", "apt install clangd, or https://clangd.llvm.org"),
    known("svelte", "svelteserver --stdio", ".svelte", LOCKS, "npm install -g svelte-language-server"),
    known("astro", "astro-ls --stdio", ".astro", LOCKS, "npm install -g @astrojs/language-server typescript"),
    known("jdtls", "jdtls", ".java", "pom.xml build.gradle build.gradle.kts .project .classpath", "https://github.com/eclipse-jdtls/eclipse.jdt.ls"),
    known("kotlin-ls", "kotlin-lsp --stdio", ".kt .kts", "settings.gradle settings.gradle.kts gradlew | build.gradle build.gradle.kts pom.xml", "https://github.com/Kotlin/kotlin-lsp"),
    known("yaml-ls", "yaml-language-server --stdio", ".yaml .yml", LOCKS, "npm install -g yaml-language-server"),
    known("lua-ls", "lua-language-server", ".lua", ".luarc.json .luarc.jsonc .luacheckrc .stylua.toml stylua.toml selene.toml selene.yml", "https://luals.github.io"),
    known("php intelephense", "intelephense --stdio", ".php", "composer.json composer.lock .php-version", "npm install -g intelephense"),
    known("prisma", "prisma language-server", ".prisma", "schema.prisma prisma/schema.prisma", "npm install -D prisma"),
    known("dart", "dart language-server --lsp", ".dart", "pubspec.yaml analysis_options.yaml", "it comes with Dart: https://dart.dev"),
    known("ocaml-lsp", "ocamllsp", ".ml .mli", "dune-project dune-workspace .merlin opam", "opam install ocaml-lsp-server"),
    known("bash", "bash-language-server start", ".sh .bash .zsh .ksh", "", "npm install -g bash-language-server"),
    known("terraform", "terraform-ls serve", ".tf .tfvars", ".terraform.lock.hcl terraform.tfstate | *.tf", "https://github.com/hashicorp/terraform-ls"),
    known("texlab", "texlab", ".tex .bib", ".latexmkrc latexmkrc .texlabroot texlabroot", "https://github.com/latex-lsp/texlab"),
    known("dockerfile", "docker-langserver --stdio", ".dockerfile Dockerfile", "", "npm install -g dockerfile-language-server-nodejs"),
    known("gleam", "gleam lsp", ".gleam", "gleam.toml", "it comes with Gleam: https://gleam.run"),
    known("clojure-lsp", "clojure-lsp listen", ".clj .cljs .cljc .edn", "deps.edn project.clj shadow-cljs.edn bb.edn build.boot", "https://clojure-lsp.io"),
    known("nixd", "nixd", ".nix", "flake.nix", "https://github.com/nix-community/nixd"),
    known("tinymist", "tinymist", ".typ .typc", "typst.toml", "https://github.com/Myriad-Dreamin/tinymist"),
    known("haskell-language-server", "haskell-language-server-wrapper --lsp", ".hs .lhs", "stack.yaml cabal.project hie.yaml *.cabal", "ghcup install hls"),
    known("julials", "julia --startup-file=no --history-file=no -e using\u{a0}LanguageServer;runserver()", ".jl", "Project.toml Manifest.toml", "julia -e 'using Pkg; Pkg.add(\"LanguageServer\")'"),
];

/// What a server calls the language of a file, where that is not the ending itself.
const LANGUAGES: &[(&str, &str)] = &[
    (".ts .mts .cts", "typescript"),
    (".tsx", "typescriptreact"),
    (".js .mjs .cjs", "javascript"),
    (".jsx", "javascriptreact"),
    (".py .pyi", "python"),
    (".rs", "rust"),
    (".sh .bash .zsh .ksh", "shellscript"),
    (".rb .rake .gemspec .ru", "ruby"),
    (".ex .exs", "elixir"),
    (".cs .csx", "csharp"),
    (".fs .fsi .fsx .fsscript", "fsharp"),
    (".cpp .cc .cxx .c++ .hpp .hh .hxx .h++", "cpp"),
    (".h", "c"),
    (".objc", "objective-c"),
    (".objcpp", "objective-cpp"),
    (".kt .kts", "kotlin"),
    (".yaml .yml", "yaml"),
    (".md", "markdown"),
    (".tf .tfvars", "terraform"),
    (".tex", "latex"),
    (".bib", "bibtex"),
    (".dockerfile Dockerfile", "dockerfile"),
    (".clj .cljs .cljc .edn", "clojure"),
    (".hs .lhs", "haskell"),
    (".jl", "julia"),
    (".ml .mli", "ocaml"),
    (".zon", "zig"),
    (".gql", "graphql"),
    (".typ .typc", "typst"),
];

/// A server as it would run for a file.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerRun {
    pub name: String,
    /// The program where it was found, and its arguments.
    pub command: (PathBuf, Vec<String>),
    pub environment: Vec<(String, String)>,
    /// Sent to it at the start.
    pub initialization: Option<Value>,
    /// The folder it works on.
    pub root: PathBuf,
}

/// A server that is wanted, and whose program is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingServer {
    pub name: String,
    /// The program that was looked for.
    pub program: String,
    /// The usual way to install it, for one that is known.
    pub install: Option<&'static str>,
}

impl ServerEntry {
    fn of(known: &'static KnownServer) -> Self {
        // A no-break space stands for one within a word.
        let word = |word: &str| word.replace('\u{a0}', " ");
        Self {
            name: known.name.to_owned(),
            command: known.command.split(' ').map(word).collect(),
            extensions: known.extensions.split(' ').map(str::to_owned).collect(),
            environment: Vec::new(),
            initialization: None,
            known: Some(known),
            usual: true,
        }
    }

    /// Whether it is for files of such a name.
    pub fn is_for(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        self.extensions.iter().any(|extension| fits(extension, name))
    }

    /// How it would run for a file, below the root of its project; none where the project does not mean it.
    /// Looks at the disk.
    ///
    /// # Errors
    /// The program that is not there.
    pub fn run(
        &self,
        file: &Path,
        project: &Path,
        environment: &Environment,
    ) -> Result<Option<ServerRun>, MissingServer> {
        let upward: Vec<&Path> = file.ancestors().skip(1).take_while(|folder| folder.starts_with(project)).collect();
        let has = |group: &str| {
            let marks = |folder: &&&Path| group.split_whitespace().any(|mark| marked(folder, mark));
            upward.iter().find(marks).map(|folder| folder.to_path_buf())
        };
        let found = self.known.and_then(|known| known.roots.split('|').find_map(has));
        if let Some(known) = self.known
            && (known.required && found.is_none() || !known.unless.is_empty() && has(known.unless).is_some())
        {
            return Ok(None);
        }
        let Some((program, arguments)) = self.command.split_first() else { return Ok(None) };
        let own = upward.iter().map(|folder| folder.join("node_modules/.bin"));
        let there = if program.contains('/') {
            Some(project.join(program)).filter(|file| base::executable::is_executable(file))
        } else if self.usual {
            base::executable::find(program, own.chain(environment.path()))
        } else {
            base::executable::find(program, environment.path())
        };
        let Some(there) = there else {
            let install = self.known.filter(|_| self.usual).map(|known| known.install);
            return Err(MissingServer { name: self.name.clone(), program: program.clone(), install });
        };
        Ok(Some(ServerRun {
            name: self.name.clone(),
            command: (there, arguments.to_vec()),
            environment: self.environment.clone(),
            initialization: self.initialization.clone(),
            root: found.unwrap_or_else(|| project.to_owned()),
        }))
    }
}

/// What servers call the language of a file of that name.
pub fn language(path: &Path) -> String {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let known = LANGUAGES.iter().find(|(endings, _)| endings.split(' ').any(|ending| fits(ending, name)));
    let ending = || path.extension().and_then(|ending| ending.to_str()).unwrap_or("plaintext").to_lowercase();
    known.map_or_else(ending, |(_, language)| (*language).to_owned())
}

/// What the settings make of the known ones. An entry without a command changes a known one.
///
/// The second list has the names of entries that are neither known nor have a command.
pub(crate) fn entries(written: Option<OnOrNamed<LanguageServer>>) -> (Vec<ServerEntry>, Vec<String>) {
    let named = match written {
        None | Some(OnOrNamed::Switch(false)) => return (Vec::new(), Vec::new()),
        Some(OnOrNamed::Switch(true)) => Vec::new(),
        Some(OnOrNamed::Named(named)) => named.0,
    };
    // Two that judge the same files would say everything twice: ty is for those who name it.
    let ty = named.iter().any(|(name, written)| name == "ty" && !written.disabled);
    let double = |known: &&'static KnownServer| known.name != if ty { "pyright" } else { "ty" };
    let known: Vec<&'static KnownServer> = KNOWN.iter().filter(double).collect();
    let mut entries: Vec<Option<ServerEntry>> = known.iter().map(|known| Some(ServerEntry::of(known))).collect();
    let mut places: HashMap<String, usize> = HashMap::new();
    places.extend(known.iter().enumerate().map(|(at, known)| (known.name.to_owned(), at)));
    let mut incomplete = Vec::new();
    for (name, written) in named {
        if written.disabled {
            if let Some(entry) = places.remove(&name).and_then(|at| entries.get_mut(at)) {
                *entry = None;
            }
            continue;
        }
        let known = places.get(&name).and_then(|at| entries.get_mut(*at)).and_then(Option::as_mut);
        let entry = match known {
            Some(entry) => entry,
            None if written.command.is_empty() || written.extensions.is_empty() => {
                // Named beside ty, it is left out all the same.
                if !KNOWN.iter().any(|known| known.name == name) {
                    incomplete.push(name);
                }
                continue;
            }
            None => {
                places.insert(name.clone(), entries.len());
                let own = ServerEntry {
                    name,
                    command: Vec::new(),
                    extensions: Vec::new(),
                    environment: Vec::new(),
                    initialization: None,
                    known: None,
                    usual: false,
                };
                entries.push_mut(None).insert(own)
            }
        };
        if !written.command.is_empty() {
            (entry.command, entry.usual) = (written.command, false);
        }
        if !written.extensions.is_empty() {
            entry.extensions = written.extensions;
        }
        entry.environment.extend(written.env.0);
        entry.initialization = written.initialization.or(entry.initialization.take());
    }
    (entries.into_iter().flatten().collect(), incomplete)
}

/// Whether a name has an ending, or is the name that is meant.
fn fits(ending: &str, name: &str) -> bool {
    if ending.starts_with('.') { name.len() > ending.len() && name.ends_with(ending) } else { name == ending }
}

fn marked(folder: &Path, mark: &str) -> bool {
    /// A manifest that is larger is not looked into.
    const MOST: u64 = 1 << 20;
    if let Some(ending) = mark.strip_prefix('*') {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        return entries.take(1_000).any(|entry| entry.file_name().to_str().is_some_and(|name| fits(ending, name)));
    }
    match mark.split_once(':') {
        None => folder.join(mark).exists(),
        Some((name, text)) => {
            let file = folder.join(name);
            let small = std::fs::metadata(&file).is_ok_and(|data| data.is_file() && data.len() <= MOST);
            small && std::fs::read_to_string(&file).is_ok_and(|has| has.contains(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    fn named(written: Value) -> Vec<ServerEntry> {
        let (entries, incomplete) = entries(Some(serde_json::from_value(written).unwrap()));
        assert!(incomplete.is_empty(), "{incomplete:?}");
        entries
    }

    #[test]
    fn the_settings_change_the_known_ones() {
        let names = |entries: &[ServerEntry]| entries.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>();
        let all = names(&named(json!(true)));
        assert_eq!(all.len(), KNOWN.len() - 1, "ty is for those who name it");
        assert_eq!(names(&named(json!({}))), all);
        assert!(entries(None).0.is_empty() && entries(Some(OnOrNamed::Switch(false))).0.is_empty());
        let changed = named(json!({
            "ty": {},
            "deno": {"disabled": true},
            "gopls": {"initialization": {"gofumpt": true}, "env": {"A": "1"}},
            "clangd": {"command": ["my-clangd"]},
            "own": {"command": ["own", "--stdio"], "extensions": [".own", "Ownfile"]},
        }));
        let all = names(&changed);
        assert!(
            all.contains(&"ty".to_owned()) && !all.contains(&"pyright".to_owned()) && !all.contains(&"deno".to_owned())
        );
        let find = |name: &str| changed.iter().find(|entry| entry.name == name).unwrap();
        assert_eq!(find("gopls").initialization, Some(json!({"gofumpt": true})));
        assert_eq!(find("gopls").environment, [("A".to_owned(), "1".to_owned())]);
        assert!(!find("clangd").usual && find("gopls").usual);
        let own = find("own");
        assert!(own.is_for(Path::new("/x/a.own")) && own.is_for(Path::new("/x/Ownfile")));
        assert!(!own.is_for(Path::new("/x/.own")) && !own.is_for(Path::new("/x/AnOwnfile")));
        let (_, incomplete) = entries(Some(serde_json::from_value(json!({"own": {"command": ["x"]}})).unwrap()));
        assert_eq!(incomplete, ["own"]);
        assert_eq!(find("clangd").command, ["my-clangd"]);
    }

    #[test]
    fn each_line_of_the_table_is_whole() {
        for (n, known) in KNOWN.iter().enumerate() {
            let entry = ServerEntry::of(known);
            assert!(entry.command.iter().all(|word| !word.is_empty()), "{}", known.name);
            assert!(entry.extensions.iter().all(|ending| ending.len() > 1), "{}", known.name);
            assert!(!known.install.is_empty(), "{}", known.name);
            assert!(KNOWN.iter().skip(n + 1).all(|other| other.name != known.name), "{} twice", known.name);
        }
        let table = [
            ("a.tsx", "typescriptreact"),
            ("a.d.ts", "typescript"),
            ("Dockerfile", "dockerfile"),
            ("a.go", "go"),
            ("x", "plaintext"),
        ];
        for (name, wanted) in table {
            assert_eq!(language(Path::new(name)), wanted, "{name}");
        }
    }

    #[test]
    fn a_server_runs_where_a_project_of_its_kind_begins() {
        let place = tempfile::tempdir().unwrap();
        let (root, bin) = (place.path().join("project"), place.path().join("bin"));
        let write = |path: &str, text: &str| {
            let path = place.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        let environment = Environment::from_vars(BTreeMap::from([
            ("HOME".to_owned(), place.path().display().to_string()),
            ("PATH".to_owned(), bin.display().to_string()),
        ]));
        let all = named(json!(true));
        let run = |name: &str, file: &str| {
            all.iter().find(|entry| entry.name == name).unwrap().run(&root.join(file), &root, &environment)
        };
        let missing = run("rust", "src/main.rs").unwrap_err();
        assert_eq!(
            (missing.program.as_str(), missing.install),
            ("rust-analyzer", Some("rustup component add rust-analyzer"))
        );
        for program in ["rust-analyzer", "deno", "typescript-language-server"] {
            write(&format!("bin/{program}"), "");
        }
        // A package of a workspace belongs to the workspace.
        write("project/Cargo.toml", "[workspace]\nmembers = [\"a\"]\n");
        write("project/a/Cargo.toml", "[package]\n");
        write("project/b/c/Cargo.toml", "[package]\n");
        assert_eq!(run("rust", "a/src/main.rs").unwrap().unwrap().root, root);
        write("project/Cargo.toml", "[package]\n");
        assert_eq!(run("rust", "b/c/d/main.rs").unwrap().unwrap().root, root.join("b/c"));
        // One of two.
        assert_eq!(run("deno", "x/a.ts").unwrap(), None);
        assert_eq!(run("typescript", "x/a.ts").unwrap().unwrap().root, root);
        write("project/x/deno.json", "{}");
        assert_eq!(run("deno", "x/a.ts").unwrap().unwrap().root, root.join("x"));
        assert_eq!(run("typescript", "x/a.ts").unwrap(), None);
        // The project's own program comes first.
        write("project/y/node_modules/.bin/typescript-language-server", "");
        let own = run("typescript", "y/a.ts").unwrap().unwrap();
        assert_eq!(own.command.0, root.join("y/node_modules/.bin/typescript-language-server"));
        assert_eq!(own.command.1, ["--stdio"]);
    }
}
