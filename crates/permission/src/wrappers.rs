//! Compares the table's entries of programs that run other programs with the programs installed
//! here.
//!
//! The option list of a wrapper determines which of its words is the program. An entry with an
//! option that the real program does not have, or with a value that the real option does not take,
//! moves the start of the wrapped command, which is then judged as something else. So the test
//! gives every wrapper every option of its own `--help`, in every form, around three commands with
//! a visible effect. It runs the lines that the rules allow, as an ordinary user, and they must not
//! have that effect. Then it does the same with pairs of the options that the program accepted,
//! separate and as one cluster of letters.
//!
//! The installed programs differ from machine to machine, and they are started in hundreds of ways,
//! so this runs only with `ADJUTANT_WRAPPERS=all`, as in `.ci/run`.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::case_tables::{bash_rules, judge};
use super::shell::programs::wrappers;
use super::{Action, PermissionContext};

/// The user who runs the commands if the tests run as root.
const UNPRIVILEGED_USER: u32 = 65_534;
/// The content of the file with secrets.
const MARK: &str = "MARKED-SECRET";
/// The time limit of a command, in seconds.
const TIMEOUT: &str = "3";
/// The exit status of `timeout` if it has killed a command.
const KILLED: i32 = 137;
/// The test fails if more than one of this many lines was killed before it ended, since then
/// nothing is tested.
const KILLED_SHARE: usize = 4;
/// Commands with a visible effect: they remove a file, print a secret, write a git hook.
const BODIES: [&str; 3] = ["rm a.txt", "cat .env", "cp b.txt .git/hooks/pre-commit"];
/// The maximum number of a wrapper's options that are paired.
const MAX_PAIRED: usize = 16;
/// The time limit for trying a wrapper's options one by one: some programs start slowly.
const TRYING_TIMEOUT: Duration = Duration::from_secs(4);
/// Words for arguments that have to be between a wrapper and its program.
const BETWEEN: [&str; 2] = ["1", "x86_64"];

/// A project whose files show the effect of a command.
struct Project {
    dir: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        let project = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir_all(project.path("ws/.git/hooks")).unwrap();
        std::fs::create_dir(project.path("home")).unwrap();
        std::fs::write(project.path("ws/.env"), format!("KEY={MARK}\n")).unwrap();
        std::fs::write(project.path("ws/b.txt"), "beta\n").unwrap();
        project.reset();
        for folder in ["", "ws", "ws/.git", "ws/.git/hooks", "home"] {
            std::fs::set_permissions(project.path(folder), PermissionsExt::from_mode(0o755))
                .unwrap();
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(
                    project.path(folder),
                    Some(UNPRIVILEGED_USER),
                    Some(UNPRIVILEGED_USER),
                )
                .unwrap();
            }
        }
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn reset(&self) {
        std::fs::write(self.path("ws/a.txt"), "alpha\n").unwrap();
        if let Err(error) = std::fs::remove_file(self.path("ws/.git/hooks/pre-commit")) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        }
    }

    /// Runs a command line without a shell, and returns its output and whether it was killed.
    ///
    /// Processes that it leaves running are killed as well; a pipe that they hold open is not
    /// waited for.
    #[expect(
        clippy::disallowed_methods,
        reason = "the programs whose entries are tested are started as they are"
    )]
    fn run(&self, line: &str) -> (String, bool) {
        let printed = std::fs::File::create(self.path("printed")).unwrap();
        let mut command = Command::new("timeout");
        command
            .args(["-s", "KILL", TIMEOUT])
            .args(line.split(' '))
            .current_dir(self.path("ws"))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", self.path("home"))
            .envs([
                ("LC_ALL", "C"),
                ("npm_config_offline", "true"),
                ("UV_OFFLINE", "1"),
                ("SHELL", "/bin/sh"),
            ])
            .stdin(Stdio::null())
            .stdout(printed.try_clone().unwrap())
            .stderr(printed);
        if rustix::process::geteuid().is_root() {
            command.uid(UNPRIVILEGED_USER).gid(UNPRIVILEGED_USER);
        }
        let mut child = command.spawn().unwrap();
        let group = rustix::process::Pid::from_child(&child);
        let status = child.wait().unwrap();
        // `timeout` leads a group with all processes that it has started. The group may no longer
        // exist.
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
        let killed = status.code().is_none_or(|code| code == KILLED);
        let printed = std::fs::read(self.path("printed")).unwrap();
        (String::from_utf8_lossy(&printed).into_owned(), killed)
    }

    /// Runs a command line and returns whether it had the effect of one of the bodies. `None` if it
    /// was killed before.
    fn does_harm(&self, line: &str) -> Option<bool> {
        let (printed, killed) = self.run(line);
        let shown = printed.contains(MARK);
        let done =
            !self.path("ws/a.txt").exists() || self.path("ws/.git/hooks/pre-commit").exists();
        if done {
            self.reset();
        }
        if killed && !shown && !done {
            None
        } else {
            Some(shown || done)
        }
    }

    fn context(&self) -> PermissionContext {
        PermissionContext {
            cwd: self.path("ws"),
            root: self.path("ws"),
            home: Some(self.path("home")),
            path: ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
                .map(PathBuf::from)
                .to_vec(),
            data_dir: self.path("data"),
            ..PermissionContext::default()
        }
    }
}

/// Returns the options in a program's `--help`: single letters, also of clusters, and long options.
fn options(help: &str) -> BTreeSet<String> {
    let is_option_char = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut found = BTreeSet::new();
    for text in help
        .split(|c: char| !is_option_char(c))
        .filter(|text| text.starts_with('-'))
    {
        match text.strip_prefix("--") {
            Some(long) if !long.is_empty() => drop(found.insert(text.to_owned())),
            Some(_) => {}
            None => found.extend(
                text.chars()
                    .skip(1)
                    .filter(|c| *c != '-')
                    .map(|letter| format!("-{letter}")),
            ),
        }
    }
    found
}

/// Returns the beginnings of lines with an option, up to the wrapped command.
fn forms(wrapper: &str, between: usize, option: &str) -> Vec<String> {
    let joined = if option.starts_with("--") { "=" } else { "" };
    let heads = ["", " 1", &format!("{joined}1")].map(|value| format!("{wrapper} {option}{value}"));
    let mut all = heads.to_vec();
    for word in BETWEEN {
        let text = format!(" {word}").repeat(between.max(1));
        all.extend(heads.iter().map(|head| format!("{head}{text}")));
        all.push(format!("{wrapper}{text} {option}"));
    }
    all
}

/// Returns the installed wrappers, each with the number of words before its program.
fn installed(project: &Project) -> Vec<(&'static str, usize)> {
    let dirs = project.context().path;
    let is_installed = |name: &str| {
        let program = name.split(' ').next().unwrap_or_default();
        dirs.iter()
            .any(|dir| base::executable::is_executable(&dir.join(program)))
    };
    wrappers()
        .into_iter()
        .filter(|(name, _)| is_installed(name))
        .collect()
}

/// Numbers of lines that were judged, run, and killed before they ended.
#[derive(Debug, Default)]
struct LineCounts {
    judged: usize,
    /// Beginnings of lines with two options.
    pairs: usize,
    run: usize,
    killed: usize,
}

/// Returns the options, each in every accepted form, with which a wrapper still runs its program.
fn accepted(
    project: &Project,
    wrapper: &str,
    between: usize,
    options: &BTreeSet<String>,
) -> Vec<String> {
    let words = " 1".repeat(between);
    let started = Instant::now();
    let runs_command = |form: &String| {
        project.does_harm(&format!("{wrapper} {form}{words} {}", BODIES[0])) == Some(true)
    };
    let forms = options.iter().flat_map(|option| {
        let joined = if option.starts_with("--") { "=" } else { "" };
        [
            option.clone(),
            format!("{option} 1"),
            format!("{option}{joined}1"),
        ]
    });
    forms
        .take_while(|_| started.elapsed() < TRYING_TIMEOUT)
        .filter(runs_command)
        .take(MAX_PAIRED)
        .collect()
}

/// Returns the beginnings of lines with two accepted options: one after the other and, if both are
/// single letters, also as one cluster.
fn pairs(wrapper: &str, between: usize, accepted: &[String]) -> Vec<String> {
    let words = " 1".repeat(between);
    let is_letter = |form: &str| form.len() == 2 && !form.starts_with("--");
    let mut heads = vec![];
    for first in accepted {
        for second in accepted.iter().filter(|second| *second != first) {
            heads.push(format!("{wrapper} {first} {second}{words}"));
            if is_letter(first) && second.starts_with('-') && !second.starts_with("--") {
                heads.push(format!("{wrapper} {first}{}{words}", &second[1..]));
            }
        }
    }
    heads
}

/// Returns the lines of one wrapper that the rules allow although they do harm, and counts the
/// lines that were judged and run. Options are paired only if the wrapper is known to work:
/// otherwise none would be recognised as accepted.
fn harmful_lines(
    project: &Project,
    wrapper: &str,
    between: usize,
    is_seen: bool,
    counts: &mut LineCounts,
) -> Vec<String> {
    let context = project.context();
    let rules = bash_rules(&context, &[("*", Action::Allow), ("rm*", Action::Deny)]);
    let options = options(&project.run(&format!("{wrapper} --help")).0);
    let mut heads: Vec<String> = options
        .iter()
        .flat_map(|option| forms(wrapper, between, option))
        .collect();
    if is_seen {
        let paired = pairs(
            wrapper,
            between,
            &accepted(project, wrapper, between, &options),
        );
        counts.pairs += paired.len();
        heads.extend(paired);
    }
    let mut found = vec![];
    for line in heads
        .iter()
        .flat_map(|head| BODIES.map(|body| format!("{head} {body}")))
    {
        counts.judged += 1;
        if judge(&rules, &line, &context).action == Action::Allow {
            counts.run += 1;
            match project.does_harm(&line) {
                Some(true) => found.push(line),
                Some(false) => {}
                None => counts.killed += 1,
            }
        }
    }
    found
}

/// Checks that the project shows harm that is done: without an option, the wrapper runs the given
/// command.
fn shows_harm(project: &Project, wrapper: &str, between: usize) -> bool {
    let words = " 1".repeat(between);
    BODIES
        .iter()
        .all(|body| project.does_harm(&format!("{wrapper}{words} {body}")) == Some(true))
}

/// Returns the reason why the installed programs are not started, or `None` if they are.
#[expect(
    clippy::disallowed_methods,
    reason = "who runs the tests says whether programs are started"
)]
fn reason_to_skip(project: &Project) -> Option<&'static str> {
    if std::env::var_os("ADJUTANT_WRAPPERS").is_none_or(|value| value != "all") {
        return Some("ADJUTANT_WRAPPERS=all starts the programs installed here");
    }
    let is_here = project
        .context()
        .path
        .iter()
        .any(|dir| base::executable::is_executable(&dir.join("timeout")));
    (!is_here).then_some("there is no `timeout` here, which ends those that do not end")
}

#[test]
fn wrappers_installed_here_have_the_options_of_their_entries() {
    let project = Project::new();
    if let Some(why) = reason_to_skip(&project) {
        println!("SKIPPED: {why}");
        return;
    }
    let wrappers = installed(&project);
    let share = wrappers.len().div_ceil(4).max(1);
    let parts: Vec<(Vec<String>, LineCounts, usize)> = std::thread::scope(|scope| {
        let parts: Vec<_> = wrappers
            .chunks(share)
            .map(|wrappers| {
                scope.spawn(move || {
                    let project = Project::new();
                    let mut counts = LineCounts::default();
                    let mut shown = 0;
                    let mut found = vec![];
                    for (wrapper, between) in wrappers {
                        let is_seen = shows_harm(&project, wrapper, *between);
                        shown += usize::from(is_seen);
                        found.extend(harmful_lines(
                            &project,
                            wrapper,
                            *between,
                            is_seen,
                            &mut counts,
                        ));
                    }
                    (found, counts, shown)
                })
            })
            .collect();
        parts.into_iter().map(|part| part.join().unwrap()).collect()
    });
    let found: Vec<&String> = parts.iter().flat_map(|part| &part.0).collect();
    let judged: usize = parts.iter().map(|part| part.1.judged).sum();
    let pairs: usize = parts.iter().map(|part| part.1.pairs).sum();
    let run: usize = parts.iter().map(|part| part.1.run).sum();
    let killed: usize = parts.iter().map(|part| part.1.killed).sum();
    let shown: usize = parts.iter().map(|part| part.2).sum();
    let count = wrappers.len();
    println!(
        "{count} wrappers, {pairs} pairs of options, {judged} lines judged, {run} run, {killed} killed, {shown} wrappers \
         seen to work"
    );
    assert!(shown >= 4.min(count), "{shown} of {count}");
    assert!(
        killed * KILLED_SHARE <= run,
        "{killed} of {run} lines were killed before they ended"
    );
    assert!(found.is_empty(), "{} of {judged}:\n{found:#?}", found.len());
}
