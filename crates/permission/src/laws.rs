//! What must hold for every text that is judged as a command line, whoever wrote it: for tests, and
//! for the fuzzer in `editor-tests/fuzz`.

use std::path::PathBuf;

use super::{Action, PermissionContext, Rules, Verdict, command_need, evaluate};

/// The law that judging `line` breaks; none where all hold. That it ends and does not panic is the
/// caller's to see.
pub fn broken(line: &str) -> Option<String> {
    let all = Rules::built_in(&[("*", "*", Action::Allow), ("bash", "rm *", Action::Deny)]);
    let reads = Rules::built_in(&[("*", "*", Action::Allow), ("edit", "*", Action::Deny)]).then(&Rules::read_only());
    let (free, plan) = (judge(&all, line), judge(&reads, line));
    let removes = |verdict: &Verdict| {
        let name = |program: &String| program.rsplit('/').next().is_some_and(|name| name.eq_ignore_ascii_case("rm"));
        verdict.units.iter().find(|unit| unit.program.as_ref().is_some_and(name)).map(|unit| unit.text.clone())
    };
    if let Some(text) = removes(&free).filter(|_| free.action != Action::Deny) {
        return Some(format!("{text:?} is in it, which a rule denies, and the verdict is {:?}", free.action));
    }
    if let Some(text) = removes(&plan).filter(|_| plan.action == Action::Allow) {
        return Some(format!("{text:?} is in it, and an agent that only reads may run it"));
    }
    if plan.action == Action::Allow && !plan.proven_read_only {
        return Some("an agent that only reads may run what is not proven to only read".into());
    }
    // Whatever stands before it, a line of its own is a command, or the whole is not understood. A
    // here-doc may end at that very line.
    if !line.contains("<<") {
        let longer = format!("{line}\n\nrm victim");
        for (rules, who) in [(&all, "a rule denies rm"), (&reads, "the agent only reads")] {
            if judge(rules, &longer).action == Action::Allow {
                return Some(format!("{who}, and a line with `rm victim` after it is allowed"));
            }
        }
    }
    None
}

/// A place that exists nowhere, so that the disk has no say.
fn judge(rules: &Rules, line: &str) -> Verdict {
    let root = PathBuf::from("/nothing-is-here");
    let place = PermissionContext {
        cwd: root.clone(),
        root,
        path: ["/usr/bin", "/bin"].map(PathBuf::from).to_vec(),
        data: "/no-data-here".into(),
        ..PermissionContext::default()
    };
    evaluate(rules, &Rules::default(), &command_need(line, &place))
}
