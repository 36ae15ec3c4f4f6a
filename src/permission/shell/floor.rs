//! Catastrophes: what is denied, or at least asked about, under every set of rules. A deny for what
//! nobody means (the whole disk, a fork bomb); a question for what somebody may mean (the home
//! directory, the whole project, the history).

use std::path::{Path, PathBuf};

use super::expand::Arg;
use super::options::Options;
use super::state::State;
use super::walk::Walk;
use super::{Action, Unit};
use crate::worktree::normal;

/// How much would be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Loss {
    Little,
    Much(&'static str),
    Everything,
}

/// A device that is written to.
pub(super) fn device(text: &str, unit: &mut Unit) {
    let name = text.trim_start_matches("/dev/");
    let disks = [
        "sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "rdisk", "mapper", "dm-", "loop", "md", "mem", "kmem",
        "port",
    ];
    if disks.iter().any(|disk| name.starts_with(disk)) {
        unit.floor(Action::Deny, &format!("{text} is a disk: writing to it destroys what is on it"));
    } else {
        unit.floor(Action::Ask, &format!("{text} is a device"));
    }
}

pub(super) fn judge(walk: &mut Walk<'_>, name: &str, args: &[Arg], unit: &mut Unit, state: &State) {
    let recursive = |options: &Options| options.has(&["-r", "-R", "--recursive"]);
    match name {
        "rm" | "srm" | "shred" | "trash" | "trash-put" | "unlink" | "rmdir" => {
            let options = Options::read(args, "", &[]);
            if name == "rm" && !recursive(&options) && !options.unknown {
                return;
            }
            removal(walk, &options.operands, unit, state, name == "rm");
        }
        "chmod" | "chown" | "chgrp" | "setfacl" => {
            let options = Options::read(args, "", &["reference", "from"]);
            if recursive(&options) {
                removal(walk, options.operands.get(1..).unwrap_or_default(), unit, state, true);
            }
        }
        "mv" => {
            let options = Options::read(args, "tS", &["target-directory", "suffix"]);
            let keep = usize::from(!options.has(&["-t", "--target-directory"]));
            let count = options.operands.len().saturating_sub(keep);
            removal(walk, &options.operands[..count], unit, state, false);
        }
        "rsync" if args.iter().any(|arg| arg.prefix().starts_with("--del")) => {
            let target = args.iter().rfind(|arg| !arg.prefix().starts_with('-')).cloned();
            removal(walk, target.as_slice(), unit, state, true);
        }
        "find" | "gfind" => find(walk, args, unit, state),
        "git" => git(args, unit),
        "mkfs" | "wipefs" | "mkswap" | "fdisk" | "sfdisk" | "parted" | "sgdisk" | "blkdiscard" | "hdparm" => {
            unit.floor(Action::Deny, "it writes to whole disks");
        }
        name if name.starts_with("mkfs.") => unit.floor(Action::Deny, "it writes to whole disks"),
        "shutdown" | "reboot" | "halt" | "poweroff" | "init" | "telinit" => {
            unit.floor(Action::Ask, "it stops the machine")
        }
        "systemctl"
            if args.iter().any(|arg| {
                ["poweroff", "reboot", "halt", "kexec", "emergency", "rescue"].iter().any(|word| arg.is(word))
            }) =>
        {
            unit.floor(Action::Ask, "it stops the machine");
        }
        "diskutil"
            if args.first().and_then(Arg::text).is_some_and(|verb| {
                ["erase", "partition", "zero", "random", "secure", "reformat"]
                    .iter()
                    .any(|start| verb.starts_with(start))
            }) =>
        {
            unit.floor(Action::Deny, "it writes to whole disks");
        }
        "kill" | "pkill" | "killall" if args.iter().any(|arg| arg.is("-1") || arg.is("1")) => {
            unit.floor(Action::Ask, "it may end every process");
        }
        "crontab" if args.iter().any(|arg| arg.is("-r")) => unit.floor(Action::Ask, "it removes all scheduled jobs"),
        _ => {}
    }
}

/// Judges what is removed with all that is below it.
fn removal(walk: &mut Walk<'_>, operands: &[Arg], unit: &mut Unit, state: &State, unknown: bool) {
    for arg in operands {
        let (texts, pattern) = match (arg.texts(), arg.pattern()) {
            (Some(texts), _) => (texts.to_vec(), false),
            (None, Some(pattern)) => (vec![pattern.to_owned()], true),
            (None, None) => {
                if unknown {
                    unit.floor(
                        Action::Ask,
                        &format!("what {} names is not known; empty, it could be everything", arg.raw),
                    );
                }
                continue;
            }
        };
        for text in texts {
            // `*` and `x/*` name what lies in a directory, which is as good as the directory.
            let stripped = text.trim_end_matches(['*', '?', '.', '[', ']', '!']).to_owned();
            let text = if pattern { if stripped.is_empty() { ".".into() } else { stripped } } else { text };
            if pattern && !text.ends_with('/') && text != "." {
                continue;
            }
            if !arg.literal && !pattern && text.is_empty() {
                unit.floor(Action::Ask, "what it removes is not known");
            }
            match worst(walk, &text, state) {
                Loss::Everything => unit.floor(Action::Deny, "it would destroy the whole disk"),
                Loss::Much(what) => unit.floor(Action::Ask, &format!("{} is {what}", shown(&text))),
                Loss::Little => {}
            }
        }
    }
}

fn shown(text: &str) -> String {
    if text.is_empty() { "\"\"".into() } else { text.to_owned() }
}

fn worst(walk: &mut Walk<'_>, text: &str, state: &State) -> Loss {
    let from: Vec<PathBuf> = if state.cwd.is_empty() { vec![PathBuf::from("/")] } else { state.cwd.clone() };
    let mut worst = Loss::Little;
    for cwd in from {
        let plain = normal(&cwd.join(text));
        let found = walk.losses.get(&plain).copied().unwrap_or_else(|| {
            let real = plain.canonicalize().unwrap_or_else(|_| plain.clone());
            loss(walk, &plain).max(loss(walk, &real))
        });
        walk.losses.insert(plain, found);
        worst = worst.max(found);
    }
    worst
}

fn loss(walk: &Walk<'_>, path: &Path) -> Loss {
    const SYSTEM: [&str; 20] = [
        "bin",
        "boot",
        "dev",
        "etc",
        "home",
        "lib",
        "lib64",
        "opt",
        "proc",
        "root",
        "run",
        "sbin",
        "srv",
        "sys",
        "usr",
        "var",
        "Users",
        "System",
        "Library",
        "Applications",
    ];
    let place = walk.place;
    if path.parent().is_none() {
        return Loss::Everything;
    }
    if place.home.as_ref().is_some_and(|home| home.starts_with(path)) {
        return Loss::Much("the home directory");
    }
    if path.parent() == Some(Path::new("/"))
        && path.file_name().is_some_and(|name| SYSTEM.iter().any(|dir| name == *dir))
    {
        return Loss::Much("a directory of the system");
    }
    if place.root.starts_with(path)
        || place.extra.iter().any(|dir| dir.starts_with(path))
        || place.cwd.starts_with(path)
    {
        return Loss::Much("the whole project");
    }
    if path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(".git")) {
        return Loss::Much("the history of a repository");
    }
    Loss::Little
}

/// `find` without a name to look for, that removes what it finds.
fn find(walk: &mut Walk<'_>, args: &[Arg], unit: &mut Unit, state: &State) {
    let first = args.iter().position(|arg| arg.prefix().starts_with(['-', '(', '!'])).unwrap_or(args.len());
    let tests = [
        "-name",
        "-iname",
        "-path",
        "-ipath",
        "-wholename",
        "-regex",
        "-iregex",
        "-empty",
        "-newer",
        "-mtime",
        "-mmin",
        "-atime",
        "-ctime",
        "-size",
        "-user",
        "-perm",
        "-lname",
        "-samefile",
        "-inum",
        "-links",
    ];
    let everything = |arg: Option<&Arg>| {
        arg.is_some_and(|arg| arg.text().or(arg.pattern()).is_some_and(|text| text.chars().all(|c| "*./".contains(c))))
    };
    let picks = args
        .iter()
        .enumerate()
        .any(|(at, arg)| tests.iter().any(|test| arg.is(test)) && (arg.is("-empty") || !everything(args.get(at + 1))));
    let runs = |arg: &Arg| ["-exec", "-execdir", "-ok", "-okdir"].iter().any(|option| arg.is(option));
    let destroyer = |arg: &Arg| {
        arg.text().is_some_and(|text| {
            ["rm", "shred", "unlink", "rmdir", "mv"].contains(&text.rsplit('/').next().unwrap_or(text))
        })
    };
    let destroys =
        args.iter().any(|arg| arg.is("-delete")) || args.windows(2).any(|pair| runs(&pair[0]) && destroyer(&pair[1]));
    if !destroys || picks {
        return;
    }
    let dot = [Arg::exact(".")];
    let paths = if first == 0 { &dot } else { &args[..first] };
    let paths: Vec<Arg> = paths.iter().filter(|arg| !arg.prefix().starts_with('-')).cloned().collect();
    removal(walk, &paths, unit, state, true);
}

/// What git cannot bring back.
fn git(args: &[Arg], unit: &mut Unit) {
    let at = super::git::subcommand(args);
    let Some(name) = args.get(at).and_then(Arg::text) else { return };
    let rest = &args[at + 1..];
    let has = |names: &[&str]| {
        rest.iter().any(|arg| {
            names
                .iter()
                .any(|name| arg.is(name) || (name.starts_with("--") && arg.prefix().starts_with(&format!("{name}="))))
        })
    };
    let short = |letter: char| {
        rest.iter().any(|arg| {
            arg.prefix().starts_with('-') && !arg.prefix().starts_with("--") && arg.prefix().contains(letter)
        })
    };
    let everything = || has(&[".", "./", ":/", "*", ":(top)"]) || rest.iter().any(|arg| arg.pattern().is_some());
    let reason = match name {
        "push"
            if short('f')
                || short('d')
                || has(&["--force", "--force-with-lease", "--delete", "--mirror", "--prune"])
                || rest.iter().any(|arg| arg.prefix().starts_with('+') || arg.prefix().starts_with(':')) =>
        {
            "it changes or removes history on another machine"
        }
        "clean" if !short('n') && !has(&["--dry-run"]) => "files that git does not know are gone for good",
        "reset" if has(&["--hard", "--merge", "--keep"]) => "uncommitted changes are gone for good",
        "checkout" if short('f') || has(&["--force", "--ours", "--theirs"]) || everything() => {
            "uncommitted changes are gone for good"
        }
        "switch" if short('f') || has(&["--force", "--discard-changes"]) => "uncommitted changes are gone for good",
        "restore" if everything() && (!has(&["--staged", "-S"]) || has(&["--worktree", "-W"])) => {
            "uncommitted changes are gone for good"
        }
        "stash" if has(&["drop", "clear"]) => "stashed changes are gone for good",
        "filter-branch" | "filter-repo" => "the whole history is rewritten",
        "reflog" if has(&["expire", "delete"]) => "what was committed before can no longer be found",
        "gc" if rest.iter().any(|arg| arg.prefix().starts_with("--prune")) => {
            "what was committed before can no longer be found"
        }
        "update-ref" if short('d') => "a reference is removed",
        "rm" if short('r') && everything() => "every file is removed",
        _ => return,
    };
    unit.floor(Action::Ask, reason);
}
