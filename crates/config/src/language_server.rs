//! Language servers: the known ones, the files that each is for, and the changes that the settings
//! make.
//!
//! To add one, add a line to `KNOWN_SERVERS`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use super::file::{LanguageServer, OnOrNamed};
use base::environment::Environment;
use lsp::ServerRun;
use lsp::language::fits;

/// A language server that may be used.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerEntry {
    /// OpenCode's name of a known server, otherwise the key in the settings.
    pub name: String,
    /// The program and its arguments; never empty.
    pub command: Vec<String>,
    /// The extensions it is for, with their dot, and whole file names without one.
    pub extensions: Vec<String>,
    /// Variables for it, in addition to those of commands.
    pub environment: Vec<(String, String)>,
    /// Sent to it at the start.
    pub initialization: Option<Value>,
    /// The table entry of a known server; `None` for the user's own.
    known: Option<&'static KnownServer>,
    /// True if it has its default program, which is looked up in the project as well.
    is_default_program: bool,
}

#[derive(Debug, PartialEq)]
struct KnownServer {
    name: &'static str,
    /// Arguments separated by single spaces.
    command: &'static str,
    extensions: &'static str,
    /// The files that mark the root of a project: the nearest directory upward with one of them.
    /// Groups are separated by `|`; a later group is used only if no file of an earlier one is
    /// found. `a:b` is a file `a` that contains the text `b`, `*.x` any file with that extension.
    roots: &'static str,
    /// True if the server is only used if one of `roots` is found.
    required: bool,
    /// The server is not used if one of these files is found upward.
    unless: &'static str,
    /// The usual way to install it.
    install: &'static str,
}

const LOCKS: &str = "package-lock.json bun.lockb bun.lock pnpm-lock.yaml yarn.lock | tsconfig.json jsconfig.json package.json";
const SCRIPTS: &str = ".ts .tsx .js .jsx .mjs .cjs .mts .cts";
const PYTHON: &str =
    "pyproject.toml setup.py setup.cfg requirements.txt Pipfile pyrightconfig.json";
const ESLINT: &str = "eslint.config.js eslint.config.mjs eslint.config.cjs eslint.config.ts .eslintrc .eslintrc.js \
                      .eslintrc.cjs .eslintrc.json .eslintrc.yml .eslintrc.yaml";

const fn known(
    name: &'static str,
    command: &'static str,
    extensions: &'static str,
    roots: &'static str,
    install: &'static str,
) -> KnownServer {
    KnownServer {
        name,
        command,
        extensions,
        roots,
        required: false,
        unless: "",
        install,
    }
}

const fn required(known: KnownServer) -> KnownServer {
    KnownServer {
        required: true,
        ..known
    }
}

/// Servers that need no command in the settings, with OpenCode's names, in the order in which they
/// are used.
#[rustfmt::skip]
const KNOWN_SERVERS: &[KnownServer] = &[
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

impl KnownServer {
    /// Returns the usual way to install it. Without a `package.json` it is not a part of the
    /// project.
    fn installation(&self, has_package: bool) -> Cow<'static, str> {
        if has_package {
            self.install.into()
        } else {
            self.install
                .replace("npm install -D", "npm install -g")
                .into()
        }
    }
}

/// A requested server whose program is not installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingServer {
    pub name: String,
    /// The program that was looked up.
    pub program: String,
    /// The usual way to install it, for a known server.
    pub install: Option<Cow<'static, str>>,
}

impl ServerEntry {
    fn of(known: &'static KnownServer) -> Self {
        // A no-break space is a space within an argument.
        let argument = |word: &str| word.replace('\u{a0}', " ");
        Self {
            name: known.name.to_owned(),
            command: known.command.split(' ').map(argument).collect(),
            extensions: known.extensions.split(' ').map(str::to_owned).collect(),
            environment: Vec::new(),
            initialization: None,
            known: Some(known),
            is_default_program: true,
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
            .any(|extension| fits(extension, name))
    }

    /// Returns the command for a file, below the root of its project. `None` if the server does not
    /// apply to the project. Reads the reader.
    ///
    /// # Errors
    /// If the program is not installed.
    pub fn run(
        &self,
        file: &Path,
        project: &Path,
        environment: &Environment,
    ) -> Result<Option<ServerRun>, MissingServer> {
        let upward: Vec<&Path> = file
            .ancestors()
            .skip(1)
            .take_while(|folder| folder.starts_with(project))
            .collect();
        let nearest_with = |group: &str| {
            let has_mark =
                |folder: &&&Path| group.split_whitespace().any(|mark| is_marked(folder, mark));
            upward
                .iter()
                .find(has_mark)
                .map(|folder| folder.to_path_buf())
        };
        let found = self
            .known
            .and_then(|known| known.roots.split('|').find_map(nearest_with));
        if let Some(known) = self.known {
            let lacks_root = known.required && found.is_none();
            if lacks_root || !known.unless.is_empty() && nearest_with(known.unless).is_some() {
                return Ok(None);
            }
        }
        let Some((program, arguments)) = self.command.split_first() else {
            return Ok(None);
        };
        let project_bins = upward.iter().map(|folder| folder.join("node_modules/.bin"));
        let executable = if program.contains('/') {
            Some(project.join(program)).filter(|file| base::executable::is_executable(file))
        } else if self.is_default_program {
            base::executable::find(program, project_bins.chain(environment.path()))
        } else {
            base::executable::find(program, environment.path())
        };
        let Some(executable) = executable else {
            let install = if self.is_default_program {
                let has_package = nearest_with("package.json").is_some();
                self.known.map(|known| known.installation(has_package))
            } else {
                None
            };
            return Err(MissingServer {
                name: self.name.clone(),
                program: program.clone(),
                install,
            });
        };
        Ok(Some(ServerRun {
            name: self.name.clone(),
            command: (executable, arguments.to_vec()),
            environment: self.environment.clone(),
            initialization: self.initialization.clone(),
            root: found.unwrap_or_else(|| project.to_owned()),
        }))
    }
}

/// Applies the settings to the known servers. An entry without a command changes a known one.
///
/// The second list has the names of entries that are neither known nor have a command.
pub(crate) fn entries(
    written: Option<OnOrNamed<LanguageServer>>,
) -> (Vec<ServerEntry>, Vec<String>) {
    let named = match written {
        None | Some(OnOrNamed::Switch(false)) => return (Vec::new(), Vec::new()),
        Some(OnOrNamed::Switch(true)) => Vec::new(),
        Some(OnOrNamed::Named(named)) => named.0,
    };
    // Two type checkers for the same files would report everything twice, so ty is used only if the
    // settings name it.
    let is_ty_named = named
        .iter()
        .any(|(name, written)| name == "ty" && !written.disabled);
    let unused_checker = if is_ty_named { "pyright" } else { "ty" };
    let known: Vec<&'static KnownServer> = KNOWN_SERVERS
        .iter()
        .filter(|known| known.name != unused_checker)
        .collect();
    let mut entries: Vec<Option<ServerEntry>> = known
        .iter()
        .map(|known| Some(ServerEntry::of(known)))
        .collect();
    let mut places: HashMap<String, usize> = HashMap::new();
    places.extend(
        known
            .iter()
            .enumerate()
            .map(|(at, known)| (known.name.to_owned(), at)),
    );
    let mut incomplete = Vec::new();
    for (name, written) in named {
        if written.disabled {
            if let Some(entry) = places.remove(&name).and_then(|at| entries.get_mut(at)) {
                *entry = None;
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
                // pyright, if ty is named too: it stays left out.
                if !KNOWN_SERVERS.iter().any(|known| known.name == name) {
                    incomplete.push(name);
                }
                continue;
            }
            None => {
                places.insert(name.clone(), entries.len());
                let user_server = ServerEntry {
                    name,
                    command: Vec::new(),
                    extensions: Vec::new(),
                    environment: Vec::new(),
                    initialization: None,
                    known: None,
                    is_default_program: false,
                };
                entries.push_mut(None).insert(user_server)
            }
        };
        if !written.command.is_empty() {
            entry.command = written.command;
            entry.is_default_program = false;
        }
        if !written.extensions.is_empty() {
            entry.extensions = written.extensions;
        }
        entry.environment.extend(written.env.0);
        entry.initialization = written.initialization.or(entry.initialization.take());
    }
    (entries.into_iter().flatten().collect(), incomplete)
}

fn is_marked(folder: &Path, mark: &str) -> bool {
    /// The maximum size of a manifest that is searched.
    const MAX_BYTES: u64 = 1 << 20;
    if let Some(ending) = mark.strip_prefix('*') {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        return entries.take(1_000).any(|entry| {
            entry
                .file_name()
                .to_str()
                .is_some_and(|name| fits(ending, name))
        });
    }
    match mark.split_once(':') {
        None => folder.join(mark).exists(),
        Some((name, text)) => {
            let file = folder.join(name);
            base::file::read_small_text(&file, MAX_BYTES).is_ok_and(|has| has.contains(text))
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
    fn settings_change_known_servers() {
        let names = |entries: &[ServerEntry]| {
            entries
                .iter()
                .map(|entry| entry.name.clone())
                .collect::<Vec<_>>()
        };
        let all = names(&named(json!(true)));
        assert_eq!(
            all.len(),
            KNOWN_SERVERS.len() - 1,
            "ty is for those who name it"
        );
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
            all.contains(&"ty".to_owned())
                && !all.contains(&"pyright".to_owned())
                && !all.contains(&"deno".to_owned())
        );
        let find = |name: &str| changed.iter().find(|entry| entry.name == name).unwrap();
        assert_eq!(find("gopls").initialization, Some(json!({"gofumpt": true})));
        assert_eq!(
            find("gopls").environment,
            [("A".to_owned(), "1".to_owned())]
        );
        assert!(!find("clangd").is_default_program && find("gopls").is_default_program);
        let own = find("own");
        assert!(own.is_for(Path::new("/x/a.own")) && own.is_for(Path::new("/x/Ownfile")));
        assert!(!own.is_for(Path::new("/x/.own")) && !own.is_for(Path::new("/x/AnOwnfile")));
        let (_, incomplete) = entries(Some(
            serde_json::from_value(json!({"own": {"command": ["x"]}})).unwrap(),
        ));
        assert_eq!(incomplete, ["own"]);
        assert_eq!(find("clangd").command, ["my-clangd"]);
    }

    #[test]
    fn known_servers_are_complete_and_unique() {
        for (n, known) in KNOWN_SERVERS.iter().enumerate() {
            let entry = ServerEntry::of(known);
            assert!(
                entry.command.iter().all(|word| !word.is_empty()),
                "{}",
                known.name
            );
            assert!(
                entry.extensions.iter().all(|ending| ending.len() > 1),
                "{}",
                known.name
            );
            assert!(!known.install.is_empty(), "{}", known.name);
            assert!(
                KNOWN_SERVERS
                    .iter()
                    .skip(n + 1)
                    .all(|other| other.name != known.name),
                "{} twice",
                known.name
            );
        }
    }

    #[test]
    fn server_runs_at_nearest_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("project");
        let bin = dir.path().join("bin");
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        let environment = Environment::from_vars(BTreeMap::from([
            ("HOME".to_owned(), dir.path().display().to_string()),
            ("PATH".to_owned(), bin.display().to_string()),
        ]));
        let all = named(json!(true));
        let run = |name: &str, file: &str| {
            all.iter().find(|entry| entry.name == name).unwrap().run(
                &root.join(file),
                &root,
                &environment,
            )
        };
        let missing = run("rust", "src/main.rs").unwrap_err();
        assert_eq!(
            (missing.program.as_str(), missing.install.as_deref()),
            ("rust-analyzer", Some("rustup component add rust-analyzer"))
        );
        // Without a package.json there is no project to install something in.
        write("project/w/biome.json", "{}");
        let install = |missing: MissingServer| missing.install.unwrap_or_default().into_owned();
        assert_eq!(
            install(run("biome", "w/a.ts").unwrap_err()),
            "npm install -g @biomejs/biome"
        );
        write("project/w/package.json", "{}");
        assert_eq!(
            install(run("biome", "w/a.ts").unwrap_err()),
            "npm install -D @biomejs/biome"
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
        assert_eq!(
            run("rust", "b/c/d/main.rs").unwrap().unwrap().root,
            root.join("b/c")
        );
        // Only one of deno and typescript runs.
        assert_eq!(run("deno", "x/a.ts").unwrap(), None);
        assert_eq!(run("typescript", "x/a.ts").unwrap().unwrap().root, root);
        write("project/x/deno.json", "{}");
        assert_eq!(run("deno", "x/a.ts").unwrap().unwrap().root, root.join("x"));
        assert_eq!(run("typescript", "x/a.ts").unwrap(), None);
        // The project's own program takes precedence.
        write("project/y/node_modules/.bin/typescript-language-server", "");
        let own = run("typescript", "y/a.ts").unwrap().unwrap();
        assert_eq!(
            own.command.0,
            root.join("y/node_modules/.bin/typescript-language-server")
        );
        assert_eq!(own.command.1, ["--stdio"]);
    }
}
