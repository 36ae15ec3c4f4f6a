//! The configuration of a repository, as far as it makes git start programs. git itself is not
//! started.
//!
//! Files are read by git's own rules, byte by byte, which are short: a library that reads more kindly
//! would see other settings than git does. What these rules do not take, git refuses as well; here it
//! counts as a setting that could start anything.

use std::collections::{BTreeMap, HashMap};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::git_file::entries;
use base::git;

/// The largest configuration that is read, in bytes.
const LARGEST: u64 = 1 << 20;
/// How many files a configuration of the user may include, one in another.
const INCLUDES: usize = 10;
/// How many repositories within repositories are looked at, and how deep.
const NESTED: usize = 100;
const DEEPEST: usize = 4;

/// What has to happen for a program of the settings to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Cause {
    /// Any use of the repository.
    Use,
    Index,
    /// The index is written, if only because times have changed.
    Refresh,
    /// Contents of files are compared, shown or written.
    Contents,
    /// A signature is looked at.
    Signature,
    /// An object is looked for that is not there.
    Object,
    /// Another repository is spoken to.
    Transport,
    Archive,
    Change,
}

impl Cause {
    /// As the field `meets` of `programs/git.txt` has it.
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

#[derive(Debug, Clone, Default)]
pub(crate) struct Repository {
    /// Which settings start a program, each as it is written, by what has to happen for it.
    pub(crate) helpers: BTreeMap<Cause, String>,
    /// Short names in lower case, and everything they may stand for.
    pub(crate) aliases: HashMap<String, Vec<String>>,
    /// A command that git does not know runs as the one that it is taken for: how that is set.
    pub(crate) autocorrects: Option<String>,
    /// `git stash show` shows differences, not only names.
    pub(crate) shows_stash: bool,
    /// Where the working tree begins, if it has one.
    pub(crate) top: Option<PathBuf>,
    /// The names of remotes that keep objects for it.
    promisors: Vec<String>,
    addresses: HashMap<String, Vec<String>>,
    /// Remotes for which it is set what is pushed, perhaps by force.
    pushed_by_setting: Vec<String>,
    /// An address is written in another way than the remotes say.
    rewritten: bool,
    hooks_path: Option<String>,
    work_tree: Option<String>,
    sha256: bool,
}

impl Repository {
    /// Looks for the repository a directory belongs to and reads what it and the user configured.
    pub(super) fn find(cwd: &Path, home: Option<&Path>) -> Self {
        let mut repository = Self::default();
        let own = home.iter().flat_map(|home| [home.join(".config/git/config"), home.join(".gitconfig")]);
        for file in std::iter::once(PathBuf::from("/etc/gitconfig")).chain(own) {
            repository.users(&file, home, INCLUDES);
        }
        let mut budget = NESTED;
        for dir in cwd.ancestors() {
            if repository.at(dir, home, &mut budget, DEEPEST) {
                break;
            }
        }
        repository
    }

    /// Reads the repository in a directory, and says whether git would take it for one. Where it
    /// would not, it looks further up; what is there counts all the same.
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
        if dir.join("HEAD").symlink_metadata().is_ok() && dir.join("refs").symlink_metadata().is_ok() {
            self.read(dir, None, home, budget, depth);
            return is_repository(dir);
        }
        false
    }

    /// Reads what belongs to a `.git` directory; `top` is where its working tree should begin.
    fn read(&mut self, dir: &Path, top: Option<&Path>, home: Option<&Path>, budget: &mut usize, depth: usize) {
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
                Ok(entries) => entries.into_iter().for_each(|(key, value)| self.setting(&key, &value)),
                Err(why) => self.unread(&file, &why),
            }
        }
        self.settle(dir, &common, top, home);
        let Some(top) = top else { return };
        let links = match git::links(dir, if self.sha256 { 32 } else { 20 }) {
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
            for (cause, told) in nested.helpers {
                self.helpers.entry(cause).or_insert_with(|| format!("{told} (in {})", link.display()));
            }
        }
    }

    fn unread(&mut self, file: &Path, why: &str) {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        self.helpers.entry(Cause::Use).or_insert_with(|| format!("its {name} cannot be read: {why}"));
    }

    /// The names that the user has made; what programs they chose is theirs to say.
    fn users(&mut self, file: &Path, home: Option<&Path>, depth: usize) {
        let Ok(entries) = entries_of(file) else { return };
        for (key, value) in entries {
            if let Some(name) = alias_name(&key) {
                self.aliases.entry(name).or_default().push(value);
            } else if key == "help.autocorrect" {
                self.autocorrects = autocorrection(&value);
            } else if key == "stash.showpatch" {
                self.shows_stash = value != "false";
            } else if (key == "include.path" || (key.starts_with("includeif.") && key.ends_with(".path"))) && depth > 0
            {
                let path = match (value.strip_prefix("~/"), home) {
                    (Some(rest), Some(home)) => home.join(rest),
                    _ => file.parent().unwrap_or(file).join(&value),
                };
                self.users(&path, home, depth - 1);
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
        let told = || format!("{key} = {value}");
        let mut helper = |cause| {
            self.helpers.entry(cause).or_insert_with(told);
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
                self.addresses.entry(middle.to_owned()).or_default().push(value.to_owned());
            }
            ("remote", "push" | "mirror") => self.pushed_by_setting.push(middle.to_owned()),
            ("remote", "promisor") if value != "false" => self.promisors.push(middle.to_owned()),
            ("extensions", "partialclone") => self.promisors.push(value.to_owned()),
            ("url", "insteadof" | "pushinsteadof") => {
                self.rewritten = true;
                if middle.contains("::") {
                    helper(Cause::Transport);
                }
            }
            ("diff", "external" | "command" | "textconv") if set => helper(Cause::Contents),
            ("diff", "submodule") if value == "diff" => helper(Cause::Contents),
            ("filter", "clean" | "smudge" | "process") if set => helper(Cause::Contents),
            ("gpg", "program" | "defaultkeycommand") if set => helper(Cause::Signature),
            // Merging again starts what `merge.*.driver` names.
            ("log", "diffmerges") if !is_plain_merge_diff(value) => helper(Cause::Contents),
            ("tar", "command") if set => helper(Cause::Archive),
            ("merge", "driver") if value != "true" => helper(Cause::Change),
            ("submodule", "update") if value.starts_with('!') => helper(Cause::Change),
            ("trailer" | "mergetool" | "difftool" | "guitool" | "man" | "browser", "command" | "cmd" | "path")
            | ("sequence", "editor")
            | ("interactive", "difffilter")
            | ("gc", "recentobjectshook")
            | ("imap", "tunnel")
                if set =>
            {
                helper(Cause::Change);
            }
            ("sendemail", name) if name.ends_with("cmd") || name == "smtpserver" => helper(Cause::Change),
            ("extensions", "objectformat") => self.sha256 = value == "sha256",
            _ => {}
        }
    }

    /// Returns the one address that a push to a remote goes to, without a secret in it. None where settings say what is
    /// pushed, or write addresses in another way.
    pub(super) fn pushed_to(&self, remote: &str) -> Option<&str> {
        let [address] = self.addresses.get(remote)?.as_slice() else { return None };
        let holds_secret = address.contains("://") && address.contains('@');
        let plain = !self.rewritten && !holds_secret && !address.contains(char::is_whitespace);
        let usual = !self.pushed_by_setting.iter().any(|name| name == remote);
        (plain && usual).then_some(address)
    }

    /// What only shows when everything is read.
    fn settle(&mut self, dir: &Path, common: &Path, top: Option<&Path>, home: Option<&Path>) {
        let hooks = match self.hooks_path.take() {
            None => Some(common.join("hooks")),
            Some(path) if path.starts_with("~/") => home.map(|home| home.join(&path[2..])),
            // `%(prefix)/…` and other people's homes.
            Some(path) if path.starts_with(['~', '%']) => None,
            Some(path) => Some(top.unwrap_or(dir).join(path)),
        };
        if hooks.is_none_or(|hooks| hooks.join("post-index-change").symlink_metadata().is_ok()) {
            self.helpers.entry(Cause::Refresh).or_insert_with(|| "the hook post-index-change".into());
        }
        if let Some(path) = self.work_tree.take() {
            // A submodule names the directory it is checked out in.
            let real = |path: &Path| std::fs::canonicalize(path).ok();
            let back = top.and_then(real).is_some_and(|top| real(&dir.join(&path)).as_ref() == Some(&top));
            if !back {
                self.helpers.entry(Cause::Index).or_insert_with(|| format!("core.worktree = {path}"));
            }
        }
        let promisors = std::mem::take(&mut self.promisors);
        for name in promisors {
            let addresses = self.addresses.get(&name).map(Vec::as_slice).unwrap_or_default();
            let plain = !addresses.is_empty() && addresses.iter().all(|address| is_plain(address)) && !self.rewritten;
            if let Some(told) = self.helpers.get(&Cause::Transport).cloned() {
                self.helpers.entry(Cause::Object).or_insert(told);
            } else if !plain {
                let from = addresses.first().unwrap_or(&name);
                self.helpers.entry(Cause::Object).or_insert_with(|| format!("missing objects come from {from}"));
            }
        }
    }
}

/// Whether git takes a directory for a repository for sure, and looks no further up.
fn is_repository(dir: &Path) -> bool {
    let head = base::file::read_regular_text(&dir.join("HEAD")).unwrap_or_default();
    let name = head.trim_end();
    let detached = matches!(name.len(), 40 | 64) && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    (detached || name.starts_with("ref: refs/")) && ["objects", "refs"].iter().all(|part| dir.join(part).is_dir())
}

/// What a `.git` file points to.
fn pointed(text: &[u8]) -> Option<PathBuf> {
    let path = std::str::from_utf8(text).ok()?.strip_prefix("gitdir: ")?.trim_end_matches(['\n', '\r']);
    (!path.is_empty() && !path.contains('\0')).then(|| path.into())
}

/// An address for which git starts nothing but its own programs and ssh.
fn is_plain(address: &str) -> bool {
    let known = ["https://", "http://", "ssh://", "git://"].iter().any(|scheme| address.starts_with(scheme));
    let short = || address.split_once(':').is_some_and(|(host, _)| !host.is_empty() && !host.contains('/'));
    !address.contains("::") && !address.starts_with('-') && (known || short())
}

/// A value of `log.diffMerges` with which nothing is merged again.
fn is_plain_merge_diff(value: &str) -> bool {
    const PLAIN: [&str; 13] =
        ["", "off", "none", "on", "m", "first-parent", "1", "separate", "combined", "c", "dense-combined", "cc", "dd"];
    PLAIN.contains(&value)
}

/// Returns how `help.autocorrect` is set where it makes git run what it guesses, after a while or at once.
fn autocorrection(value: &str) -> Option<String> {
    const SHOWS: [&str; 8] = ["0", "never", "prompt", "show", "false", "no", "off", ""];
    let runs = !SHOWS.contains(&&*value.to_ascii_lowercase());
    runs.then(|| format!("help.autocorrect = {value}"))
}

fn is_switch(value: &str) -> bool {
    ["true", "false", "yes", "no", "on", "off", "0", "1"].contains(&&*value.to_ascii_lowercase())
}

/// `alias.name`, and `alias.name.command` of newer versions.
fn alias_name(key: &str) -> Option<String> {
    let name = key.strip_prefix("alias.")?;
    Some(name.strip_suffix(".command").unwrap_or(name).to_lowercase())
}

fn absent(e: &std::io::Error) -> bool {
    matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// A small regular file; none where there is nothing.
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
    file.take(LARGEST + 1).read_to_end(&mut text).map_err(|e| e.to_string())?;
    let fits = u64::try_from(text.len()).is_ok_and(|length| length <= LARGEST);
    if fits { Ok(Some(text)) } else { Err("it is too large".into()) }
}

fn entries_of(path: &Path) -> Result<Vec<(String, String)>, String> {
    let Some(text) = bytes(path)? else { return Ok(vec![]) };
    entries(&text).map_err(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a configuration starts, in a repository of its own.
    fn helpers(text: &str) -> BTreeMap<Cause, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join(".git")).unwrap();
        std::fs::write(dir.path().join(".git/config"), text).unwrap();
        Repository::find(&dir.path().join("sub"), None).helpers
    }

    #[test]
    fn what_a_configuration_starts() {
        use Cause::{Archive, Change, Contents, Index, Object, Refresh, Signature, Transport, Use};
        let plain = "[remote \"o\"]\nurl = https://example.org/x\npromisor = true\n[branch \"m\"]\nremote = o\n";
        let table: [(&str, &[Cause]); 30] = [
            ("[core]\n\tbare = false\n\tfsmonitor = true ; ours\n[diff]\n\texternal =\n", &[]),
            ("[core]\nsplitIndex = true\nhooksPath = hk\n", &[Change]),
            ("[Core] FSMonitor = touch x\n[Filter \"A.b\"]\nclean = x\n", &[Index, Contents]),
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
            ("[remote \"o\"]\nurl = git@example.org:x/y.git\npromisor = true\n", &[]),
            ("[remote \"o\"]\nurl = .\npromisor = true\n", &[Object]),
            ("[extensions]\npartialClone = ext::x\n", &[Object]),
            ("[extensions]\npartialClone = o\n[remote \"o\"]\nurl = https://x\nuploadpack = x\n", &[Object, Transport]),
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
            assert_eq!(helpers(text).into_keys().collect::<Vec<_>>(), wanted, "{text}");
        }
        assert_eq!(helpers("[Core] FSMonitor = touch x")[&Index], "core.fsmonitor = touch x");
    }

    #[test]
    fn the_repository_is_the_one_git_takes() {
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
        // An empty `.git` hides nothing of a bare repository.
        repository("bare");
        write("bare/config", evil);
        std::fs::create_dir(dir.path().join("bare/.git")).unwrap();
        // A linked work tree has settings of its own beside the shared ones.
        repository("main/.git");
        write("w/.git", "gitdir: ../main/.git/worktrees/w\n");
        write("main/.git/worktrees/w/commondir", "../..\n");
        write("main/.git/worktrees/w/config.worktree", evil);
        // One that points nowhere.
        write("lost/.git", "gitdir ../main/.git\n");
        let find = |path: &str| Repository::find(&dir.path().join(path), None);
        for path in ["bare", "bare/objects", "w", "w/sub"] {
            assert_eq!(find(path).helpers.into_keys().collect::<Vec<_>>(), [Cause::Index], "{path}");
            assert_eq!(find(path).aliases["st"], ["!rm  x"], "{path}");
        }
        assert_eq!(find("main").helpers.len(), 0);
        assert_eq!(find("lost").helpers.into_keys().collect::<Vec<_>>(), [Cause::Use]);
    }
}
