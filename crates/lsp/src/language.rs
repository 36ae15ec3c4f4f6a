//! The language identifiers of files.

use std::path::Path;

/// Language identifiers of files, unless the identifier is the extension itself.
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

/// Returns the language identifier of a file with that name.
pub fn language(path: &Path) -> String {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let known = LANGUAGES
        .iter()
        .find(|(endings, _)| endings.split(' ').any(|ending| fits(ending, name)));
    let ending = || {
        path.extension()
            .and_then(|ending| ending.to_str())
            .unwrap_or("plaintext")
            .to_lowercase()
    };
    known.map_or_else(ending, |(_, language)| (*language).to_owned())
}

/// Returns whether a file name has an extension, or is the given whole name.
pub fn fits(ending: &str, name: &str) -> bool {
    if ending.starts_with('.') {
        name.len() > ending.len() && name.ends_with(ending)
    } else {
        name == ending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_of_file_is_that_of_its_name() {
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
}
