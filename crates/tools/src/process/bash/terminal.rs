//! Detects programs that draw on a terminal. A command has none, so they would fail, or wait until
//! the timeout. They are refused before they start, with advice on another way to the result.

use permission::shell::{CommandAnalysis, CommandUnit};

/// Programs of one kind.
struct ScreenPrograms {
    /// Their names, separated by spaces.
    names: &'static str,
    /// The options with which they need no terminal, separated by spaces; `*` matches any rest. A
    /// single letter with `-` may also be among several letters.
    without: &'static str,
    /// True if they take their commands from standard input, if it is not empty.
    reads_commands: bool,
    /// The advice to the model.
    instead: &'static str,
}

/// The known programs that draw on a terminal.
const SCREEN_PROGRAMS: &[ScreenPrograms] = &[
    ScreenPrograms {
        names: "vim vi view rvim rview vimdiff",
        without: "-e -E -s -S -c -l -L -r -h -H --cmd --help --version --remote* --server*",
        reads_commands: true,
        instead: "Use the tools for files, or give it its commands: vim -es -c '%s/a/b/g' -c wq FILE",
    },
    ScreenPrograms {
        names: "nvim nvimdiff",
        without: "-e -E -s -S -c -l -L -r -h -v --cmd --headless --embed --help --version --api-info --remote* --server*",
        reads_commands: true,
        instead: "Use the tools for files, or give it its commands: nvim --headless -c '%s/a/b/g' -c wq FILE",
    },
    ScreenPrograms {
        names: "nano pico joe jed ne micro hx helix mcedit zile",
        without: "-h -V -g -version -options -plugin -clean -batch -script --help --version --health --grammar",
        reads_commands: false,
        instead: "Use the tools for files, or sed",
    },
    ScreenPrograms {
        names: "top",
        without: "-b -l -h -v -V -O --batch* --help --version",
        reads_commands: false,
        instead: "top -b -n1 prints its list once",
    },
    ScreenPrograms {
        names: "htop btop bpytop bashtop gotop nvtop zenith",
        without: "-h -v -V -s --help --version --snapshot",
        reads_commands: true,
        instead: "top -b -n1 or ps aux prints a list of processes",
    },
    ScreenPrograms {
        names: "iotop iftop nethogs",
        without: "-b -t -h -V --batch --help --version",
        reads_commands: false,
        instead: "iotop -b -n1, iftop -t -s 5 or nethogs -t -c 5 prints its list",
    },
    ScreenPrograms {
        names: "watch",
        without: "-e -g -q -h -v --errexit --chgexit --equexit --help --version",
        reads_commands: false,
        instead: "Run the command itself, or repeat it in a loop that ends",
    },
    ScreenPrograms {
        names: "mc ranger nnn vifm yazi ncdu",
        without: "-h -v -V -o -0 -1 -F -f --help --version --server-list --remote* --list* --copy-config* --cmd*",
        reads_commands: false,
        instead: "Use ls, find or du",
    },
    ScreenPrograms {
        names: "tig lazygit gitui lazydocker",
        without: "-h -v -c -cd --help --version --config --print*",
        reads_commands: false,
        instead: "Use git log, git diff and git status, or docker ps",
    },
    ScreenPrograms {
        names: "fzf",
        without: "-f -0 -1 -h --filter* --select-1 --exit-0 --help --version --man --bash --zsh --fish",
        reads_commands: false,
        instead: "fzf --filter TEXT prints what matches",
    },
];

/// Programs that run another one with the standard streams they have.
const TRANSPARENT_PROGRAMS: [&str; 18] = [
    "sudo", "doas", "env", "nice", "ionice", "nohup", "time", "command", "exec", "builtin", "eval",
    "sh", "bash", "dash", "zsh", "setsid", "stdbuf", "busybox",
];

/// Returns the reason, with advice, why a command line needs a terminal. `None` if it needs none,
/// or if that is not certain.
pub(super) fn needs_terminal(line: &CommandAnalysis) -> Option<String> {
    if line.is_incomplete || line.opaque.is_some() {
        return None;
    }
    let asks_for_terminal = ["[ -t ", "[[ -t ", "test -t "];
    if asks_for_terminal
        .iter()
        .any(|test| line.text.contains(test))
    {
        return None;
    }
    line.units.iter().enumerate().find_map(|(n, unit)| {
        let kind = screen_program(unit)?;
        if !is_direct(&line.units[..n], unit.layer) {
            return None;
        }
        let name = base_name(unit)?;
        Some(format!(
            "{name} needs a terminal, which commands here do not have. Nothing was run. {}.",
            kind.instead
        ))
    })
}

/// Returns the kind of a program that would draw on a terminal.
fn screen_program(unit: &CommandUnit) -> Option<&'static ScreenPrograms> {
    let name = base_name(unit)?;
    if !unit.is_usual || unit.is_conditional {
        return None;
    }
    let kind = SCREEN_PROGRAMS
        .iter()
        .find(|kind| kind.names.split(' ').any(|one| one == name))?;
    if kind.reads_commands && unit.has_input {
        return None;
    }
    let words = unit.normalized.split(' ').skip(1);
    let mut options = words.take_while(|word| *word != "--");
    let needs_none = match name {
        // An old spelling of its options begins without a dash.
        "top" => options
            .enumerate()
            .any(|(n, word)| n == 0 && !word.starts_with('-') || has_option(kind, word)),
        "watch" => own_options(options).any(|word| has_option(kind, word)),
        // The client of MinIO has the same name; it has a subcommand.
        "mc" => options.next().is_some(),
        _ => options.any(|word| has_option(kind, word) || is_ex_command(kind, word)),
    };
    // A computed word may be any option.
    let is_computed = unit.normalized.contains(permission::wildcard::UNKNOWN);
    (!needs_none && !is_computed).then_some(kind)
}

/// Returns the options of `watch`, without those of the command that it repeats.
fn own_options<'w>(words: impl Iterator<Item = &'w str>) -> impl Iterator<Item = &'w str> {
    let mut is_value = false;
    words.take_while(move |word| {
        let is_own = is_value || word.starts_with('-');
        is_value = !is_value && ["-n", "--interval"].contains(word);
        is_own
    })
}

/// Returns whether a word is or contains an option with which no terminal is needed.
fn has_option(kind: &ScreenPrograms, word: &str) -> bool {
    kind.without.split(' ').any(|option| {
        if let Some(beginning) = option.strip_suffix('*') {
            return word.starts_with(beginning);
        }
        let is_letter = option.len() == 2 && !word.starts_with("--");
        word == option
            || word.split_once('=').is_some_and(|(name, _)| name == option)
            || is_letter && word.starts_with('-') && word.contains(&option[1..])
    })
}

/// Returns whether a word is a command for vim, which may end it: `+q`, but not `+12` or `+/text`,
/// which only move the cursor.
fn is_ex_command(kind: &ScreenPrograms, word: &str) -> bool {
    let command = word.strip_prefix('+').unwrap_or_default();
    kind.reads_commands && command.starts_with(|c: char| !c.is_ascii_digit() && c != '/')
}

/// Returns whether a unit has the standard streams of the line: no program around it gives it a
/// terminal or ends it. `before` are the preceding units.
fn is_direct(before: &[CommandUnit], layer: usize) -> bool {
    let mut layer = layer;
    for unit in before.iter().rev() {
        if layer == 0 {
            break;
        }
        if unit.layer < layer {
            let is_known = base_name(unit).is_some_and(|name| TRANSPARENT_PROGRAMS.contains(&name));
            if !is_known {
                return false;
            }
            layer = unit.layer;
        }
    }
    layer == 0
}

/// Returns the name of a unit's program, without its directory.
fn base_name(unit: &CommandUnit) -> Option<&str> {
    let name = unit.program.as_deref()?;
    name.rsplit('/').next()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use permission::PermissionContext;

    use super::*;

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn full_screen_programs_are_refused_before_they_start() {
        let refused = [
            "vim a.txt",
            "vi",
            "/usr/bin/vim a.txt",
            "vim +12 a.txt",
            "vim +/word a.txt",
            "vim -R a.txt",
            "vim -u NONE -- -es",
            "nvim a.txt b.txt",
            "cd src && vim a.txt",
            "vim a.txt | cat",
            "(vim a.txt)",
            "if true; then nano a.txt; fi",
            "sudo vim /etc/hosts",
            "env A=1 nano a.txt",
            "sh -c 'vim a.txt'",
            "sudo sh -c 'vim a.txt'",
            "A=1 vim a.txt",
            "nano a.txt",
            "echo x | nano -",
            "vim a.txt &",
            "top",
            "top -d 1 -n1",
            "top -u root",
            "htop",
            "htop -d 5",
            "btop",
            "iotop -o",
            "watch ls -e",
            "watch -n1 ls",
            "watch -n 1 ls -e",
            "mc",
            "ncdu /",
            "tig",
            "lazygit",
            "ls | fzf",
        ];
        let fine = [
            "vim -es -c '%s/a/b/' -c wq a.txt",
            "vim -Nes a.txt",
            "vim -c wq a.txt",
            "vim +q a.txt",
            "vim +wq! a.txt",
            "vim -s script a.txt",
            "vim --version",
            "nvim --headless +q",
            "nvim -v",
            "nvim --embed",
            "nvim --headless -c 'lua print(1)' -c q",
            "printf ':wq' | vim a.txt",
            "vim a.txt < commands",
            "vim a.txt <<EOF\n:wq\nEOF",
            "ex a.txt",
            "ex -s a.txt",
            "ed a.txt",
            "vim $OPTIONS a.txt",
            "vim \"$(options)\" a.txt",
            "less a.txt",
            "less a.txt | head",
            "git log | less",
            "more a.txt",
            "man ls",
            "man ls | col -b",
            "top -b -n1",
            "top -bn1",
            "top -n1 -b | head -20",
            "top b n1",
            "top -l 1",
            "top -v",
            "htop --version",
            "nvtop -s",
            "iotop -b -n1",
            "iftop -t -s 5",
            "watch -g ls",
            "watch -n 1 -g ls",
            "echo q | htop",
            "mc ls play/bucket",
            "mc cp a.txt play/bucket/",
            "timeout 5 watch ls",
            "timeout 5 htop",
            "nano --version",
            "hx --health",
            "hx -g fetch",
            "micro -plugin list",
            "ncdu -o out /",
            "ls | fzf -f a",
            "fzf --filter=a < list",
            "command -v vim",
            "which vim nano",
            "type vim",
            "man vim",
            "apt-get install -y vim nano htop",
            "echo vim a.txt",
            "grep vim a.txt",
            "git config core.editor vim",
            "EDITOR=vim git commit -m x",
            "vim() { echo \"$@\"; }; vim a.txt",
            "./vim a.txt",
            "./scripts/top",
            "[ -t 0 ] && vim a.txt",
            "tmux new -d 'vim a.txt'",
            "script -c 'vim a.txt' /dev/null",
            "expect -c 'spawn vim a.txt'",
            "docker exec -it box vim a.txt",
            "ssh host top",
            "emacs --batch -l a.el",
            "cat <<EOF\nvim a.txt\nEOF",
            "cat > vim <<EOF\ntop\nEOF",
            "pkill top; pgrep vim",
            "python3 -c 'view = 1; top = view'",
            "python3 <<'EOF'\nview = 1\ntop = 2\nEOF",
        ];
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(dir.path()).unwrap();
        std::fs::create_dir(root.join("scripts")).unwrap();
        for name in ["vim", "scripts/top"] {
            std::fs::write(root.join(name), "#!/bin/sh\n").unwrap();
        }
        let context = PermissionContext {
            cwd: root.clone(),
            root,
            path: vec![PathBuf::from("/usr/bin"), PathBuf::from("/bin")],
            ..PermissionContext::default()
        };
        let reason = |command: &str| needs_terminal(&permission::shell::analyze(command, &context));
        for command in refused {
            let reason = reason(command).unwrap_or_else(|| panic!("{command} is not refused"));
            assert!(reason.contains("needs a terminal"), "{command}: {reason}");
        }
        for command in fine {
            assert_eq!(reason(command), None, "{command}");
        }
    }
}
