//! Command lines on a page: a `terminal` block holds lines that begin with `$ `, which a shell runs
//! in the project with `adjutant` on its `PATH`, and the output of each, standard error included.
//! `…` stands for anything within a line, and alone on a line for any number of lines; an exit code
//! other than 0 appears as `[code]`.

use std::path::Path;

use crate::placeholders::Placeholders;
use crate::project::Project;

/// Runs the lines of a block; returns the block as it should be, or the problem.
pub fn run(
    body: &str,
    project: &Project,
    names: &mut Placeholders,
    bless: bool,
) -> Result<String, String> {
    let mut text = String::new();
    let mut lines = body.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(typed) = line.strip_prefix("$ ") else {
            return Err(format!("no command before {line:?}"));
        };
        let mut wanted = Vec::new();
        while let Some(next) = lines.next_if(|next| !next.starts_with("$ ")) {
            wanted.push(next);
        }
        let printed = one(typed, project, names);
        let printed: Vec<&str> = printed.lines().collect();
        let fits = fits(&wanted, &printed);
        if !fits && !bless {
            return Err(format!(
                "$ {typed}\nprinted\n{}\nnot\n{}",
                printed.join("\n"),
                wanted.join("\n")
            ));
        }
        for line in [line].iter().chain(if fits { &wanted } else { &printed }) {
            text.push_str(line);
            text.push('\n');
        }
    }
    Ok(text)
}

fn one(typed: &str, project: &Project, names: &mut Placeholders) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_adjutant"));
    let path = format!(
        "{}:{}",
        program.parent().unwrap().display(),
        project.variable("PATH")
    );
    let typed = names.expand(typed);
    let mut shell = project.command("bash");
    shell
        .args(["--norc", "-c", &format!("exec 2>&1\n{typed}")])
        .current_dir(project.cwd())
        .env("PATH", path);
    let output = shell.output().unwrap();
    let mut text = names.shorten(&String::from_utf8_lossy(&output.stdout));
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    match output.status.code() {
        Some(0) => {}
        Some(code) => text.push_str(&format!("[{code}]\n")),
        None => text.push_str("[killed]\n"),
    }
    text
}

fn fits(wanted: &[&str], printed: &[&str]) -> bool {
    match wanted.split_first() {
        None => printed.is_empty(),
        Some((&"…", rest)) => (0..=printed.len()).any(|at| fits(rest, &printed[at..])),
        Some((line, rest)) => {
            printed.first().is_some_and(|first| like(line, first)) && fits(rest, &printed[1..])
        }
    }
}

fn like(pattern: &str, line: &str) -> bool {
    let pieces: Vec<&str> = pattern.split('…').collect();
    let [first, middle @ .., last] = pieces.as_slice() else {
        return pattern == line;
    };
    let Some(mut rest) = line
        .strip_prefix(first)
        .and_then(|rest| rest.strip_suffix(last))
    else {
        return false;
    };
    middle.iter().all(|piece| match rest.split_once(piece) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}
