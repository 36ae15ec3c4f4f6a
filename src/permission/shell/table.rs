//! Programs as data: which change nothing, which options turn them, which are there to write.

/// The builtins of bash.
pub(super) const BUILTINS: [&str; 61] = [
    ":",
    "true",
    "false",
    "echo",
    "printf",
    "test",
    "[",
    "pwd",
    "cd",
    "pushd",
    "popd",
    "dirs",
    "read",
    "type",
    "hash",
    "enable",
    "alias",
    "unalias",
    "set",
    "shopt",
    "export",
    "declare",
    "typeset",
    "local",
    "readonly",
    "unset",
    "shift",
    "let",
    "eval",
    "exec",
    "source",
    ".",
    "trap",
    "wait",
    "jobs",
    "fg",
    "bg",
    "kill",
    "exit",
    "return",
    "break",
    "continue",
    "getopts",
    "ulimit",
    "umask",
    "times",
    "command",
    "builtin",
    "help",
    "history",
    "fc",
    "bind",
    "compgen",
    "complete",
    "compopt",
    "mapfile",
    "readarray",
    "caller",
    "disown",
    "suspend",
    "logout",
];

/// Languages: their names, the options that carry program text, the options that take another value.
pub(super) type Interpreter = (&'static [&'static str], &'static [&'static str], &'static str);

/// The interpreters we know, shells aside.
pub(super) const INTERPRETERS: [Interpreter; 14] = [
    (&["python", "pypy", "ipython"], &["-c"], "mWXQ"),
    (&["perl"], &["-e", "-E"], "IMmC"),
    (&["ruby", "jruby"], &["-e"], "IrCE"),
    (&["node", "nodejs", "bun", "tsx", "ts-node"], &["-e", "-p", "--eval", "--print", "-pe"], "rC"),
    (&["deno"], &[], ""),
    (&["php"], &["-r", "-B", "-R", "-E"], "dcfFtz"),
    (&["lua", "luajit"], &["-e"], "l"),
    (&["Rscript", "R"], &["-e"], ""),
    (&["tclsh", "wish", "expect"], &["-c"], ""),
    (&["osascript"], &["-e"], "l"),
    (&["julia"], &["-e", "-E", "--eval", "--print"], "L"),
    (&["ghc", "runghc", "groovy", "scala", "elixir", "erl", "iex"], &["-e", "--eval", "-eval"], ""),
    (&["guile", "sbcl", "emacs", "clisp", "racket"], &["-c", "--eval", "-e", "-x"], ""),
    (
        &["gdb", "lldb", "sqlite", "psql", "mysql", "ed", "ex", "vi", "vim", "nvim", "bc", "m"],
        &["-ex", "-c", "-e", "-o", "-cmd"],
        "",
    ),
];

#[derive(Clone, Copy)]
pub(super) enum Use {
    /// They are no files.
    Nothing,
    List,
    Read,
    /// The first is a text, the others are read.
    TextThenRead,
    Edit,
    /// The last is written, the others are read.
    Copy,
}

pub(super) struct Program {
    pub(super) names: &'static [&'static str],
    pub(super) operands: Use,
    /// Letters and long options that take a value.
    pub(super) short: &'static str,
    pub(super) long: &'static [&'static str],
    /// Options after which it is no longer known to change nothing.
    pub(super) turns: &'static [&'static str],
    /// Options whose value is a file it writes.
    pub(super) writes: &'static [&'static str],
    /// Options whose value is a file it reads.
    pub(super) reads: &'static [&'static str],
    /// Options whose value is a command.
    pub(super) runs: &'static [&'static str],
}

const fn reader(names: &'static [&'static str], operands: Use, short: &'static str) -> Program {
    Program { names, operands, short, long: &[], turns: &[], writes: &[], reads: &[], runs: &[] }
}

/// Programs that change nothing, options named here aside.
pub(super) const READERS: [Program; 31] = [
    reader(
        &[
            "cat", "tac", "nl", "rev", "wc", "expand", "unexpand", "fold", "fmt", "paste", "column", "comm", "join",
            "look",
        ],
        Use::Read,
        "wtsdnlFcbo",
    ),
    reader(&["head", "tail"], Use::Read, "nc"),
    reader(&["cut"], Use::Read, "bcdf"),
    reader(
        &["md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum", "cksum", "sum", "shasum"],
        Use::Read,
        "a",
    ),
    reader(
        &["base64", "base32", "od", "hexdump", "hd", "strings", "zcat", "bzcat", "xzcat", "zstdcat", "cmp"],
        Use::Read,
        "wAjNtSenisb",
    ),
    Program {
        long: &["to-file", "from-file", "label", "exclude", "exclude-from", "context", "unified"],
        reads: &["--to-file", "--from-file", "-X", "--exclude-from"],
        turns: &["-l", "--paginate"],
        ..reader(&["diff", "diff3", "colordiff"], Use::Read, "CUILFxXSW")
    },
    reader(&["ls", "dir", "vdir", "stat", "gls"], Use::List, "ITwcf"),
    Program {
        long: &["files0-from", "max-depth", "exclude", "threshold"],
        reads: &["--files0-from", "-X", "--exclude-from"],
        ..reader(&["du"], Use::List, "dtBX")
    },
    reader(&["df", "realpath", "readlink", "lsblk", "findmnt", "mountpoint", "namei"], Use::List, "tBx"),
    reader(
        &[
            "basename",
            "dirname",
            "seq",
            "expr",
            "sleep",
            "uname",
            "arch",
            "nproc",
            "whoami",
            "groups",
            "id",
            "tty",
            "uptime",
            "free",
            "factor",
            "numfmt",
            "lscpu",
            "cal",
            "locale",
            "which",
            "whereis",
            "pgrep",
            "users",
            "who",
            "w",
            "lsb_release",
            "sw_vers",
            "getconf",
            "tsort",
            "pathchk",
            "tr",
        ],
        Use::Nothing,
        "",
    ),
    Program {
        long: &[
            "regexp",
            "file",
            "max-count",
            "after-context",
            "before-context",
            "context",
            "include",
            "exclude",
            "exclude-dir",
            "exclude-from",
            "binary-files",
            "devices",
            "directories",
            "label",
        ],
        reads: &["-f", "--file", "--exclude-from"],
        ..reader(&["grep", "egrep", "fgrep", "zgrep", "ggrep"], Use::TextThenRead, "efmABCDd")
    },
    Program {
        long: &[
            "regexp",
            "file",
            "max-count",
            "after-context",
            "before-context",
            "context",
            "glob",
            "type",
            "type-not",
            "threads",
            "max-columns",
            "max-depth",
            "encoding",
            "replace",
            "sort",
            "sortr",
            "pre",
            "hostname-bin",
            "pre-glob",
            "ignore-file",
            "color",
            "colors",
            "engine",
            "type-add",
        ],
        reads: &["-f", "--file", "--ignore-file"],
        runs: &["--pre", "--hostname-bin"],
        turns: &["--pre", "--hostname-bin", "-z", "--search-zip", "--hyperlink-format"],
        ..reader(&["rg", "ripgrep"], Use::TextThenRead, "efmABCgtTjMEdr")
    },
    Program {
        long: &[
            "output",
            "key",
            "field-separator",
            "temporary-directory",
            "buffer-size",
            "compress-program",
            "files0-from",
            "parallel",
            "batch-size",
            "random-source",
        ],
        writes: &["-o", "--output"],
        reads: &["--files0-from", "--random-source"],
        runs: &["--compress-program"],
        turns: &["-o", "--output", "--compress-program", "-T", "--temporary-directory"],
        ..reader(&["sort", "gsort"], Use::Read, "kotTS")
    },
    Program {
        long: &["output", "input-range", "head-count", "random-source"],
        writes: &["-o", "--output"],
        turns: &["-o", "--output"],
        ..reader(&["shuf"], Use::Read, "oinr")
    },
    Program {
        long: &["output", "from-code", "to-code"],
        writes: &["-o", "--output"],
        turns: &["-o", "--output"],
        ..reader(&["iconv"], Use::Read, "foct")
    },
    Program {
        long: &["filelimit", "timefmt", "charset", "info", "gitfile", "infofile", "sort", "fromfile"],
        writes: &["-o", "--output"],
        turns: &["-o", "--output", "-R"],
        ..reader(&["tree"], Use::List, "LPIoHT")
    },
    Program {
        long: &["magic-file", "files-from", "separator", "parameter", "exclude"],
        reads: &["-f", "--files-from", "-m", "--magic-file"],
        turns: &["-C", "--compile", "-z", "-Z", "--uncompress", "--uncompress-noreport", "-S"],
        ..reader(&["file"], Use::List, "mfFeP")
    },
    Program {
        long: &["date", "file", "reference", "set"],
        reads: &["-f", "--file", "-r", "--reference"],
        turns: &["-s", "--set"],
        ..reader(&["date", "gdate"], Use::Nothing, "dfrsI")
    },
    Program { turns: &["-b", "-F", "--file", "--boot"], ..reader(&["hostname"], Use::Nothing, "F") },
    Program {
        long: &["from-file", "arg", "argjson", "slurpfile", "rawfile", "indent"],
        reads: &["-f", "--from-file", "-L", "--library-path"],
        ..reader(&["jq", "gojq"], Use::TextThenRead, "fL")
    },
    Program { turns: &["-i", "--inplace", "-s", "--split-exp"], ..reader(&["yq"], Use::TextThenRead, "opI") },
    reader(&["nm", "objdump", "readelf", "size", "ldd", "otool"], Use::Read, "jMmD"),
    Program { turns: &["-E", "e", "E", "--environment"], ..reader(&["ps"], Use::Nothing, "pCGgotuU") },
    reader(&["cloc", "tokei", "scc", "wcc"], Use::List, ""),
    reader(&["zipinfo", "lsof"], Use::List, ""),
    Program {
        long: &["path-to-ignore", "pager", "ignore", "ignore-dir", "depth", "max-count", "file-search-regex"],
        reads: &["-p", "--path-to-ignore"],
        runs: &["--pager"],
        turns: &["--pager"],
        ..reader(&["ag"], Use::TextThenRead, "ABCmgGpW")
    },
    Program {
        long: &["base-directory", "search-path", "ignore-file", "exec", "exec-batch", "type", "extension", "exclude"],
        reads: &["--ignore-file"],
        ..reader(&["fd", "fdfind"], Use::Nothing, "dtEecSoxX")
    },
    Program {
        long: &["pager", "language", "map-syntax", "theme", "style", "line-range", "highlight-line", "file-name"],
        runs: &["--pager"],
        turns: &["--pager"],
        ..reader(&["bat", "batcat"], Use::Read, "lmHr")
    },
    Program {
        long: &["pager", "html", "browser", "config-file", "manpath"],
        runs: &["-P", "--pager", "-H", "--html"],
        turns: &["-P", "--pager", "-H", "--html", "-C", "--config-file"],
        ..reader(&["man", "info", "apropos", "whatis", "tldr"], Use::Nothing, "PHCMSs")
    },
    reader(&["less", "more", "most", "view"], Use::Read, ""),
    reader(&["xxd"], Use::Copy, "clgsno"),
];

pub(super) struct Writer {
    pub(super) names: &'static [&'static str],
    pub(super) operands: Use,
    pub(super) short: &'static str,
    pub(super) long: &'static [&'static str],
    pub(super) destroys: bool,
}

const fn writer(names: &'static [&'static str], operands: Use, short: &'static str, destroys: bool) -> Writer {
    Writer { names, operands, short, long: &[], destroys }
}

/// Programs that are there to change something.
pub(super) const WRITERS: [Writer; 16] = [
    writer(&["rm", "rmdir", "unlink", "srm", "trash", "trash-put"], Use::Edit, "", true),
    Writer { long: &["size", "random-source", "iterations"], ..writer(&["shred", "wipe"], Use::Edit, "sn", true) },
    Writer { long: &["target-directory", "suffix"], ..writer(&["mv"], Use::Edit, "tS", true) },
    Writer {
        long: &["target-directory", "suffix"],
        ..writer(&["cp", "ln", "link", "rename", "prename"], Use::Copy, "tS", false)
    },
    Writer {
        long: &["target-directory", "suffix", "mode", "owner", "group"],
        ..writer(&["install"], Use::Copy, "tSmog", false)
    },
    Writer { long: &["mode", "context"], ..writer(&["mkdir", "mkfifo", "mknod"], Use::Edit, "mZ", false) },
    Writer { long: &["date", "reference", "time"], ..writer(&["touch"], Use::Edit, "drt", false) },
    Writer { long: &["size", "reference"], ..writer(&["truncate"], Use::Edit, "sr", true) },
    Writer {
        long: &["reference", "from"],
        ..writer(&["chmod", "chown", "chgrp", "chattr", "setfacl", "xattr", "setcap"], Use::Edit, "", false)
    },
    Writer { long: &["output-error"], ..writer(&["tee", "sponge"], Use::Edit, "", false) },
    writer(
        &["gzip", "gunzip", "bzip2", "bunzip2", "xz", "unxz", "lzma", "zstd", "unzstd", "compress", "uncompress"],
        Use::Edit,
        "S",
        false,
    ),
    Writer { long: &["tmpdir", "suffix"], ..writer(&["mktemp"], Use::Nothing, "p", false) },
    writer(&["patch"], Use::Edit, "dioprBDFYzV", false),
    writer(&["split", "csplit"], Use::Nothing, "abCln", false),
    writer(&["crontab"], Use::Nothing, "ue", false),
    writer(&["dos2unix", "unix2dos", "prettier", "gofmt", "rustfmt", "black", "isort"], Use::Nothing, "", false),
];

/// Programs that talk to the network.
pub(super) const NETWORK: [&str; 22] = [
    "curl",
    "wget",
    "ssh",
    "scp",
    "sftp",
    "rsync",
    "nc",
    "ncat",
    "netcat",
    "socat",
    "telnet",
    "ftp",
    "dig",
    "nslookup",
    "host",
    "ping",
    "http",
    "https",
    "aria2c",
    "mosh",
    "traceroute",
    "openssl",
];
