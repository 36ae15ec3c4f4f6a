//! The settings of a repository that make git start programs. git itself is not started.
//!
//! Files are parsed byte by byte by git's own rules, which are short: a more lenient library would
//! read other settings than git. A file that these rules refuse is refused by git as well; here it
//! counts as a setting that could start anything.

use std::collections::{BTreeMap, HashMap};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::git_file::entries;
use base::git;

/// The maximum size of a configuration file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The maximum depth of includes in the user's configuration.
const MAX_INCLUDE_DEPTH: usize = 10;
/// The maximum number of nested repositories that are read, and their maximum depth.
const MAX_NESTED: usize = 100;
const MAX_NESTING_DEPTH: usize = 4;

/// An event that makes git start a program of the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Cause {
    /// Any use of the repository.
    Use,
    /// The index is read.
    Index,
    /// The index is written, if only because times have changed.
    Refresh,
    /// Contents of files are compared, shown or written.
    Contents,
    /// A signature is verified.
    Signature,
    /// A missing object is requested.
    Object,
    /// Another repository is contacted.
    Transport,
    /// An archive is created.
    Archive,
    /// Commits or files are changed, for which hooks, merge drivers and the like run.
    Change,
}

impl Cause {
    /// Returns the name in the field `meets` of `programs/git.txt`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Use => "use",
            Self::Index => "index",
            Self::Refresh => "refresh",
            Self::Contents => "contents",
            Self::Signature => "signature",
            Self::Object => "object",
            Self::Transport => "transport",
            Self::Archive => "archive",
            Self::Change => "change",
        }
    }
}

/// A repository with the settings on which the effects of a git command depend.
#[derive(Debug, Clone, Default)]
pub(crate) struct Repository {
    /// The settings that start a program, as written, by the event that does so.
    pub(crate) helpers: BTreeMap<Cause, String>,
    /// Aliases in lower case, with all their possible meanings.
    pub(crate) aliases: HashMap<String, Vec<String>>,
    /// The setting that makes git run a similar command instead of an unknown one.
    pub(crate) autocorrects: Option<String>,
    /// True if `git stash show` shows differences, not only names.
    pub(crate) shows_stash: bool,
    /// The top of the working tree, if there is one.
    pub(crate) top: Option<PathBuf>,
    /// The names of promisor remotes.
    promisors: Vec<String>,
    addresses: HashMap<String, Vec<String>>,
    /// Remotes whose pushed refs are set, perhaps with force.
    pushed_by_setting: Vec<String>,
    /// True if a setting rewrites the addresses of remotes.
    rewrites_addresses: bool,
    hooks_path: Option<String>,
    work_tree: Option<String>,
    uses_sha256: bool,
}

impl Repository {
    /// Finds the repository of a directory, and reads its settings and the user's.
    pub(super) fn find(cwd: &Path, home: Option<&Path>) -> Self {
        let mut repository = Self::default();
        let own = home
            .iter()
            .flat_map(|home| [home.join(".config/git/config"), home.join(".gitconfig")]);
        for file in std::iter::once(PathBuf::from("/etc/gitconfig")).chain(own) {
            repository.read_user_file(&file, home, MAX_INCLUDE_DEPTH);
        }
        let mut budget = MAX_NESTED;
        for dir in cwd.ancestors() {
            if repository.at(dir, home, &mut budget, MAX_NESTING_DEPTH) {
                break;
            }
        }
        repository
    }

    /// Reads the repository in a directory, and returns whether git would recognise it. Otherwise
    /// git searches further up, but the settings found here count nevertheless.
    fn at(&mut self, dir: &Path, home: Option<&Path>, budget: &mut usize, depth: usize) -> bool {
        let dot = dir.join(".git");
        match std::fs::metadata(&dot) {
            Ok(meta) if meta.is_dir() => {
                self.top = Some(dir.to_owned());
                self.read(&dot, Some(dir), home, budget, depth);
                if is_repository(&dot) {
                    return true;
                }
            }
            Ok(_) => {
                self.top = Some(dir.to_owned());
                match bytes(&dot).ok().flatten().as_deref().and_then(pointed) {
                    Some(target) => self.read(&dir.join(target), Some(dir), home, budget, depth),
                    None => self.unread(&dot, "it names no directory"),
                }
                return true;
            }
            Err(e) if absent(&e) => {}
            Err(e) => self.unread(&dot, &e.to_string()),
        }
        if dir.join("HEAD").symlink_metadata().is_ok()
            && dir.join("refs").symlink_metadata().is_ok()
        {
            self.read(dir, None, home, budget, depth);
            return is_repository(dir);
        }
        false
    }

    /// Reads the settings that belong to a `.git` directory; `top` is the expected top of its
    /// working tree.
    fn read(
        &mut self,
        dir: &Path,
        top: Option<&Path>,
        home: Option<&Path>,
        budget: &mut usize,
        depth: usize,
    ) {
        let common = match bytes(&dir.join("commondir")) {
            Ok(None) => dir.to_owned(),
            Ok(Some(text)) => match String::from_utf8(text) {
                Ok(text) => dir.join(text.trim_end_matches(['\n', '\r'])),
                Err(_) => return self.unread(&dir.join("commondir"), "it is not text"),
            },
            Err(e) => return self.unread(&dir.join("commondir"), &e),
        };
        for file in [common.join("config"), dir.join("config.worktree")] {
            match entries_of(&file) {
                Ok(entries) => entries
                    .into_iter()
                    .for_each(|(key, value)| self.setting(&key, &value)),
                Err(why) => self.unread(&file, &why),
            }
        }
        self.resolve_dependent_settings(dir, &common, top, home);
        let Some(top) = top else { return };
        let links = match git::links(dir, if self.uses_sha256 { 32 } else { 20 }) {
            Ok(links) => links,
            Err(why) => return self.unread(&dir.join("index"), why),
        };
        for link in links {
            let inner = top.join(&link);
            if inner.join(".git").symlink_metadata().is_err() {
                continue;
            }
            if *budget == 0 || depth == 0 {
                return self.unread(&inner, "there are too many repositories in it");
            }
            *budget -= 1;
            let mut nested = Self::default();
            nested.at(&inner, home, budget, depth - 1);
            for (cause, setting) in nested.helpers {
                self.helpers
                    .entry(cause)
                    .or_insert_with(|| format!("{setting} (in {})", link.display()));
            }
        }
    }

    fn unread(&mut self, file: &Path, why: &str) {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        self.helpers
            .entry(Cause::Use)
            .or_insert_with(|| format!("its {name} cannot be read: {why}"));
    }

    /// Reads the user's aliases. The programs in the user's own settings are trusted.
    fn read_user_file(&mut self, file: &Path, home: Option<&Path>, depth: usize) {
        let Ok(entries) = entries_of(file) else {
            return;
        };
        for (key, value) in entries {
            if let Some(name) = alias_name(&key) {
                self.aliases.entry(name).or_default().push(value);
            } else if key == "help.autocorrect" {
                self.autocorrects = autocorrection(&value);
            } else if key == "stash.showpatch" {
                self.shows_stash = value != "false";
            } else if (key == "include.path"
                || (key.starts_with("includeif.") && key.ends_with(".path")))
                && depth > 0
            {
                let path = match (value.strip_prefix("~/"), home) {
                    (Some(rest), Some(home)) => home.join(rest),
                    _ => file.parent().unwrap_or(file).join(&value),
                };
                self.read_user_file(&path, home, depth - 1);
            }
        }
    }

    fn setting(&mut self, key: &str, value: &str) {
        if let Some(name) = alias_name(key) {
            self.aliases.entry(name).or_default().push(value.to_owned());
            return;
        }
        let (section, rest) = key.split_once('.').unwrap_or((key, ""));
        let (middle, name) = rest.rsplit_once('.').unwrap_or(("", rest));
        let setting = || format!("{key} = {value}");
        let mut helper = |cause| {
            self.helpers.entry(cause).or_insert_with(setting);
        };
        let set = !value.is_empty();
        match (section, name) {
            ("include" | "includeif", "path") | ("hook", _) => helper(Cause::Use),
            ("core", "alternaterefscommand") if set => helper(Cause::Use),
            ("core", "fsmonitor") if set && !is_switch(value) => helper(Cause::Index),
            ("core", "hookspath") => {
                helper(Cause::Change);
                self.hooks_path = Some(value.to_owned());
            }
            ("core", "worktree") => self.work_tree = Some(value.to_owned()),
            ("stash", "showpatch") => self.shows_stash = value != "false",
            ("help", "autocorrect") => self.autocorrects = autocorrection(value),
            ("core", "sshcommand" | "gitproxy" | "askpass") if set => helper(Cause::Transport),
            ("credential", "helper") if value.contains(['!', '/', ' ']) => helper(Cause::Transport),
            ("remote", "uploadpack" | "receivepack" | "vcs") => helper(Cause::Transport),
            ("remote" | "submodule", "url" | "pushurl") => {
                if value.contains("::") {
                    helper(Cause::Transport);
                }
                self.addresses
                    .entry(middle.to_owned())
                    .or_default()
                    .push(value.to_owned());
            }
            ("remote", "push" | "mirror") => self.pushed_by_setting.push(middle.to_owned()),
            ("remote", "promisor") if value != "false" => self.promisors.push(middle.to_owned()),
            ("extensions", "partialclone") => self.promisors.push(value.to_owned()),
            ("url", "insteadof" | "pushinsteadof") => {
                self.rewrites_addresses = true;
                if middle.contains("::") {
                    helper(Cause::Transport);
                }
            }
            ("diff", "external" | "command" | "textconv") if set => helper(Cause::Contents),
            ("diff", "submodule") if value == "diff" => helper(Cause::Contents),
            ("filter", "clean" | "smudge" | "process") if set => helper(Cause::Contents),
            ("gpg", "program" | "defaultkeycommand") if set => helper(Cause::Signature),
            // A repeated merge starts the program in `merge.*.driver`.
            ("log", "diffmerges") if !is_plain_merge_diff(value) => helper(Cause::Contents),
            ("tar", "command") if set => helper(Cause::Archive),
            ("merge", "driver") if value != "true" => helper(Cause::Change),
            ("submodule", "update") if value.starts_with('!') => helper(Cause::Change),
            (
                "trailer" | "mergetool" | "difftool" | "guitool" | "man" | "browser",
                "command" | "cmd" | "path",
            )
            | ("sequence", "editor")
            | ("interactive", "difffilter")
            | ("gc", "recentobjectshook")
            | ("imap", "tunnel")
                if set =>
            {
                helper(Cause::Change);
            }
            ("sendemail", name) if name.ends_with("cmd") || name == "smtpserver" => {
                helper(Cause::Change)
            }
            ("extensions", "objectformat") => self.uses_sha256 = value == "sha256",
            _ => {}
        }
    }

    /// Returns the only address of a push to a remote, if it contains no secret. `None` if settings
    /// select what is pushed, or rewrite addresses.
    pub(super) fn pushed_to(&self, remote: &str) -> Option<&str> {
        let [address] = self.addresses.get(remote)?.as_slice() else {
            return None;
        };
        let holds_secret = address.contains("://") && address.contains('@');
        let plain =
            !self.rewrites_addresses && !holds_secret && !address.contains(char::is_whitespace);
        let usual = !self.pushed_by_setting.iter().any(|name| name == remote);
        (plain && usual).then_some(address)
    }

    /// Evaluates settings that depend on each other, after all files were read.
    fn resolve_dependent_settings(
        &mut self,
        dir: &Path,
        common: &Path,
        top: Option<&Path>,
        home: Option<&Path>,
    ) {
        let hooks = match self.hooks_path.take() {
            None => Some(common.join("hooks")),
            Some(path) if path.starts_with("~/") => home.map(|home| home.join(&path[2..])),
            // `%(prefix)/…`, and other users' home directories.
            Some(path) if path.starts_with(['~', '%']) => None,
            Some(path) => Some(top.unwrap_or(dir).join(path)),
        };
        if hooks.is_none_or(|hooks| hooks.join("post-index-change").symlink_metadata().is_ok()) {
            self.helpers
                .entry(Cause::Refresh)
                .or_insert_with(|| "the hook post-index-change".into());
        }
        if let Some(path) = self.work_tree.take() {
            // A submodule's setting names the directory in which it is checked out.
            let real = |path: &Path| std::fs::canonicalize(path).ok();
            let back = top
                .and_then(real)
                .is_some_and(|top| real(&dir.join(&path)).as_ref() == Some(&top));
            if !back {
                self.helpers
                    .entry(Cause::Index)
                    .or_insert_with(|| format!("core.worktree = {path}"));
            }
        }
        let promisors = std::mem::take(&mut self.promisors);
        for name in promisors {
            let addresses = self
                .addresses
                .get(&name)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let plain = !addresses.is_empty()
                && addresses.iter().all(|address| is_plain(address))
                && !self.rewrites_addresses;
            if let Some(setting) = self.helpers.get(&Cause::Transport).cloned() {
                self.helpers.entry(Cause::Object).or_insert(setting);
            } else if !plain {
                let from = addresses.first().unwrap_or(&name);
                self.helpers
                    .entry(Cause::Object)
                    .or_insert_with(|| format!("missing objects come from {from}"));
            }
        }
    }
}

/// Returns whether git certainly recognises a directory as a repository, and searches no further
/// up.
fn is_repository(dir: &Path) -> bool {
    let head = base::file::read_regular_text(&dir.join("HEAD")).unwrap_or_default();
    let name = head.trim_end();
    let detached =
        matches!(name.len(), 40 | 64) && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    (detached || name.starts_with("ref: refs/"))
        && ["objects", "refs"]
            .iter()
            .all(|part| dir.join(part).is_dir())
}

/// Returns the target of a `.git` file.
fn pointed(text: &[u8]) -> Option<PathBuf> {
    let path = std::str::from_utf8(text)
        .ok()?
        .strip_prefix("gitdir: ")?
        .trim_end_matches(['\n', '\r']);
    (!path.is_empty() && !path.contains('\0')).then(|| path.into())
}

/// Returns whether git starts only its own programs and ssh for an address.
fn is_plain(address: &str) -> bool {
    let known = ["https://", "http://", "ssh://", "git://"]
        .iter()
        .any(|scheme| address.starts_with(scheme));
    let is_scp_like = || {
        address
            .split_once(':')
            .is_some_and(|(host, _)| !host.is_empty() && !host.contains('/'))
    };
    !address.contains("::") && !address.starts_with('-') && (known || is_scp_like())
}

/// Returns whether a value of `log.diffMerges` repeats no merge.
fn is_plain_merge_diff(value: &str) -> bool {
    const PLAIN: [&str; 13] = [
        "",
        "off",
        "none",
        "on",
        "m",
        "first-parent",
        "1",
        "separate",
        "combined",
        "c",
        "dense-combined",
        "cc",
        "dd",
    ];
    PLAIN.contains(&value)
}

/// Returns the setting `help.autocorrect` if it makes git run its guess, immediately or after a
/// delay.
fn autocorrection(value: &str) -> Option<String> {
    const SHOWS: [&str; 8] = ["0", "never", "prompt", "show", "false", "no", "off", ""];
    let runs = !SHOWS.contains(&&*value.to_ascii_lowercase());
    runs.then(|| format!("help.autocorrect = {value}"))
}

fn is_switch(value: &str) -> bool {
    ["true", "false", "yes", "no", "on", "off", "0", "1"].contains(&&*value.to_ascii_lowercase())
}

/// Returns the name in `alias.name`, or in `alias.name.command` of newer versions.
fn alias_name(key: &str) -> Option<String> {
    let name = key.strip_prefix("alias.")?;
    Some(name.strip_suffix(".command").unwrap_or(name).to_lowercase())
}

fn absent(e: &std::io::Error) -> bool {
    matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Reads a small regular file; `None` if there is none.
fn bytes(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if absent(&e) => return Ok(None),
        Err(e) => return Err(e.to_string()),
    };
    if !meta.is_file() {
        return Err("it is not a file".into());
    }
    let mut text = Vec::new();
    let file = base::file::open_regular(path).map_err(|e| e.to_string())?;
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(|e| e.to_string())?;
    let fits = u64::try_from(text.len()).is_ok_and(|length| length <= MAX_FILE_BYTES);
    if fits {
        Ok(Some(text))
    } else {
        Err("it is too large".into())
    }
}

fn entries_of(path: &Path) -> Result<Vec<(String, String)>, String> {
    let Some(text) = bytes(path)? else {
        return Ok(vec![]);
    };
    entries(&text).map_err(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the helpers of a configuration, in a new repository.
    fn helpers(text: &str) -> BTreeMap<Cause, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join(".git")).unwrap();
        std::fs::write(dir.path().join(".git/config"), text).unwrap();
        Repository::find(&dir.path().join("sub"), None).helpers
    }

    #[test]
    fn settings_that_start_programs_are_found() {
        use Cause::{Archive, Change, Contents, Index, Object, Refresh, Signature, Transport, Use};
        let plain = "[remote \"o\"]\nurl = https://example.org/x\npromisor = true\n[branch \"m\"]\nremote = o\n";
        let table: [(&str, &[Cause]); 30] = [
            (
                "[core]\n\tbare = false\n\tfsmonitor = true ; ours\n[diff]\n\texternal =\n",
                &[],
            ),
            ("[core]\nsplitIndex = true\nhooksPath = hk\n", &[Change]),
            (
                "[Core] FSMonitor = touch x\n[Filter \"A.b\"]\nclean = x\n",
                &[Index, Contents],
            ),
            ("[diff]\n\texternal = \"touch PWN;:\"\n", &[Contents]),
            ("[diff \"x\"]\ntextconv = cat\n", &[Contents]),
            ("[diff]\nsubmodule = diff\n", &[Contents]),
            ("[include]\npath = ../x\n", &[Use]),
            ("[includeIf \"gitdir:~/\"]\npath = ../x\n", &[Use]),
            ("[core]\nfsmonitor = \\x", &[Use]),
            ("[core]\nhooksPath = ~other/hk\n", &[Refresh, Change]),
            ("[core]\nworktree = /\n", &[Index]),
            ("[core]\nworktree = ..\n", &[]),
            ("[core]\nsshCommand = x\n", &[Transport]),
            ("[credential]\nhelper = store\n", &[]),
            ("[credential \"https://x\"]\nhelper = !x\n", &[Transport]),
            ("[remote \"o\"]\nurl = ext::sh -c x\n", &[Transport]),
            ("[url \"ext::sh\"]\ninsteadOf = https:\n", &[Transport]),
            (plain, &[]),
            (
                "[remote \"o\"]\nurl = git@example.org:x/y.git\npromisor = true\n",
                &[],
            ),
            ("[remote \"o\"]\nurl = .\npromisor = true\n", &[Object]),
            ("[extensions]\npartialClone = ext::x\n", &[Object]),
            (
                "[extensions]\npartialClone = o\n[remote \"o\"]\nurl = https://x\nuploadpack = x\n",
                &[Object, Transport],
            ),
            (
                "[extensions]\npartialClone = o\n[remote \"o\"]\nurl = https://x\n[url \"/\"]\ninsteadOf = h\n",
                &[Object],
            ),
            ("[gpg]\nprogram = x\n", &[Signature]),
            ("[gpg \"ssh\"]\ndefaultKeyCommand = x\n", &[Signature]),
            ("[tar \"tgz\"]\ncommand = x\n", &[Archive]),
            ("[merge \"ours\"]\ndriver = true\n", &[]),
            ("[merge \"x\"]\ndriver = x %A\n", &[Change]),
            ("[trailer \"x\"]\ncmd = x\n", &[Change]),
            ("[submodule \"x\"]\nupdate = !x\n", &[Change]),
        ];
        for (text, wanted) in table {
            assert_eq!(
                helpers(text).into_keys().collect::<Vec<_>>(),
                wanted,
                "{text}"
            );
        }
        assert_eq!(
            helpers("[Core] FSMonitor = touch x")[&Index],
            "core.fsmonitor = touch x"
        );
    }

    #[test]
    fn repository_is_found_as_by_git() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let repository = |path: &str| {
            for part in ["objects", "refs"] {
                std::fs::create_dir_all(dir.path().join(path).join(part)).unwrap();
            }
            write(&format!("{path}/HEAD"), "ref: refs/heads/main\n");
        };
        let evil = "[core]\nfsmonitor = x\n[alias]\nST = !rm \\\n x\n";
        // An empty `.git` does not hide a bare repository.
        repository("bare");
        write("bare/config", evil);
        std::fs::create_dir(dir.path().join("bare/.git")).unwrap();
        // A linked working tree has settings of its own in addition to the shared ones.
        repository("main/.git");
        write("w/.git", "gitdir: ../main/.git/worktrees/w\n");
        write("main/.git/worktrees/w/commondir", "../..\n");
        write("main/.git/worktrees/w/config.worktree", evil);
        // A `.git` file without a valid target.
        write("lost/.git", "gitdir ../main/.git\n");
        let find = |path: &str| Repository::find(&dir.path().join(path), None);
        for path in ["bare", "bare/objects", "w", "w/sub"] {
            assert_eq!(
                find(path).helpers.into_keys().collect::<Vec<_>>(),
                [Cause::Index],
                "{path}"
            );
            assert_eq!(find(path).aliases["st"], ["!rm  x"], "{path}");
        }
        assert_eq!(find("main").helpers.len(), 0);
        assert_eq!(
            find("lost").helpers.into_keys().collect::<Vec<_>>(),
            [Cause::Use]
        );
    }
}
